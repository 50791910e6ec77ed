"""Verbs of `testbed` that train."""
