"""Availability traces from other people's formats: one module per format, or per source of several."""
