"""A Flower app's clients as a workload: its `ClientApp` runs unchanged, in its own environment."""
