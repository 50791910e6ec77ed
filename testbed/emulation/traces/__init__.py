"""Traces: measured or synthetic records of when clients are online, how fast their links are, and who dropped out."""
