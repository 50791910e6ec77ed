"""Runs side by side: measures, rows, the overhead table."""
