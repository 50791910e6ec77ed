"""Lotto: Jiang, Ye, Chen, et al., USENIX Security 2024 (arXiv 2401.02880), in its two variants."""
