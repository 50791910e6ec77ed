"""Published values of Bell et al. (CCS 2020, IACR ePrint 2020/704), and of its implementations."""
