"""Secure aggregation among neighbours (Bell et al., CCS 2020, IACR ePrint 2020/704)."""
