"""Verbs of `testbed` that read what runs have recorded, or compute what papers promise."""
