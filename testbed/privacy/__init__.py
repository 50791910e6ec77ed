"""Differential privacy: noise that participants add to what they share, and what taking part costs them."""
