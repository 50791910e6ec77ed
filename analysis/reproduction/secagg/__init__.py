"""Published values of Bonawitz et al. (CCS 2017)."""
