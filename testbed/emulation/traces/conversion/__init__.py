"""Availability traces from other people's formats: one module per format, each with one function `convert`."""
