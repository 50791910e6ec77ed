"""Attacks on privacy that are carried out: what an honest-but-curious server, or any observer, can tell.

`view` is what a server has seen of a real run, `victims` what it must not know; `reconstruction` solves for single
updates, `inversion` makes pictures of them. `membership` tells whether one sample took part.
"""
