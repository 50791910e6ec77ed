"""Attacks on privacy that are carried out: what an honest-but-curious server, or any observer, can tell.

`reconstruction` solves what a server has seen of a real run for single updates, `inversion` makes pictures of them;
`victims` is what a server must not know. `membership` tells whether one sample took part in DP-SGD;
`membership_in_sums` and `property_of_sums` ask of a run's sums (`sums_seen`) what clients' data are. `outcomes` is what
an adversary has attained, `other_models` what it has learned from other models than the one to be trained, and
`survey` tries every misbehaviour.
"""
