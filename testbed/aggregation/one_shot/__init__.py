"""One-shot aggregation (OPA, arXiv 2410.22303): clients upload once, masked from Ring-LWE; a committee unmasks the
sum."""
