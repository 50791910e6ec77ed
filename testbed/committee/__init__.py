"""Committees: a few clients that serve the others in aggregation, and the verification of their membership."""
