"""Converters of traces from published formats: one module per format, or per source of several formats."""
