"""The papers' guarantees as numbers: what a set of parameters promises, and which parameters keep a promise.

`tails` holds the binomial tails, `lotto` Lotto's Theorems 1 and 2 and Corollary 1, `skellam` the accounting of the
Skellam mechanism, `lotto_dp` Lotto's Corollaries 2 and 3, `planning` the way back from a target to parameters.
"""
