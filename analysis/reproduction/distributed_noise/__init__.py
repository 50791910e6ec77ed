"""Agarwal et al. (NeurIPS 2021), and Jiang et al. (Dordis, EuroSys 2024): noise that participants add to sums."""
