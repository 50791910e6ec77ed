"""Malicious servers of Lotto, and their accomplices."""
