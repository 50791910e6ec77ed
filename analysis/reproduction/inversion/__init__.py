"""Attacks that turn updates into data: Pasquini et al. (CCS 2022), Fowl et al. (ICLR 2022)."""
