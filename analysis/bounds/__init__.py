"""Guarantees of the papers as numbers, and the way back: parameters that keep a target.

`tails` has the binomial tails, `lotto` Lotto's Theorems 1 and 2 and Corollary 1 and the way back from a target to
parameters, `lotto_rounds` its Corollaries 2 and 3.
"""
