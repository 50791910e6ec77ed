"""Malicious servers of secure aggregation, and their accomplices."""
