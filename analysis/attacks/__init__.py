"""What a server that only sees sums finds out: attacks on the records of real runs.

`view` is what it has seen, `victims` what it must not know; `reconstruction` solves for single updates, `inversion`
makes pictures of them.
"""
