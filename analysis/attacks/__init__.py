"""Privacy attacks by an honest-but-curious server, or any other observer, carried out on recorded runs.

`reconstruction` solves the sums of a run for single updates, and `inversion` turns updates into pictures. `victims` has
the truth, which a server must not know. `membership` tests whether one sample took part in DP-SGD; `membership_in_sums`
and `property_of_sums` infer clients' data from a run's sums (`sums_seen`). `outcomes` measures the success of an
adversary, `other_models` the information that a server gains by sending other models than the one to be trained, and
`survey` tries every misbehaviour.
"""
