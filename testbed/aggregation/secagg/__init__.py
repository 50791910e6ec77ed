"""Secure aggregation (Bonawitz et al., CCS 2017, IACR ePrint 2017/281, Figure 4)."""
