"""Noise that participants add to sums: Agarwal et al. (NeurIPS 2021) and Jiang et al. (Dordis, EuroSys 2024)."""
