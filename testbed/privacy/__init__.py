"""Differential privacy: noise that participants add to their updates, and the accounting of its cost."""
