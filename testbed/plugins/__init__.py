"""User-defined classes, named ``package.module:Name`` in an experiment: import, checks and options."""
