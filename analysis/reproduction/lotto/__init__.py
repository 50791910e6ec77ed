"""Lotto's tables and figures (arXiv 2401.02880)."""
