"""A Flower app's clients as a workload: its `ClientApp`, unchanged, in the environment that it was written for."""
