"""The testbed's version, equal to that in `pyproject.toml`."""

VERSION = "0.2.0"
