"""User-defined classes, named ``package.module:Name`` in an experiment: found, checked, and given their options."""
