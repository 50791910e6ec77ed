"""One-shot aggregation (OPA, arXiv 2410.22303): clients upload once under masks; a committee unmasks the sum."""
