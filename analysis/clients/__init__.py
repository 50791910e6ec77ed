"""Properties of the clients of an experiment, before any run."""
