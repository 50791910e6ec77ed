"""One-shot aggregation: clients upload once under Ring-LWE masks, and a committee unmasks the sum (OPA, arXiv 2410.22303)."""
