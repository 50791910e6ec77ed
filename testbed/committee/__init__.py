"""Committees: a few clients that serve the others in aggregation, and how everybody knows who they are."""
