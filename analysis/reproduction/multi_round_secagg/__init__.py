"""Multi-RoundSecAgg's tables and figures (arXiv 2106.03328)."""
