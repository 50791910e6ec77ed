"""Flamingo (Ma et al., IEEE S&P 2023, arXiv 2308.09883): after one set-up, a committee decrypts the remaining masks."""
