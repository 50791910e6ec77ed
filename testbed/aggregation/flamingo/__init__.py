"""Flamingo: Ma et al., IEEE S&P 2023, arXiv 2308.09883: one set-up, and a committee that decrypts what is left over."""
