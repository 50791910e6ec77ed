"""Data sets, client by client."""
