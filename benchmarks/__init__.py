"""Speed, measured against floors and peers: one file for each question, run as ``python -m benchmarks.NAME``."""
