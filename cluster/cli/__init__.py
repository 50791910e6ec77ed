"""Verbs of `testbed` that need a Ray cluster."""
