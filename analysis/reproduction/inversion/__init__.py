"""Attacks that recover data from updates: Pasquini et al. (CCS 2022), Fowl et al. (ICLR 2022)."""
