"""The papers' guarantees as numbers: what a set of parameters promises, and which parameters keep a promise.

`tails` holds the binomial tails, `lotto` Lotto's Theorems 1 and 2 and Corollary 1 and the way back from a target to
parameters, `lotto_rounds` its Corollaries 2 and 3.
"""
