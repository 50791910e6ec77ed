"""Local training and evaluation."""
