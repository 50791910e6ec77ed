"""Comparison of runs: measures, rows, baselines, and the overhead and target tables."""
