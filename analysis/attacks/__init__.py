"""Attacks on privacy that are carried out: what an honest-but-curious server, or any observer, can tell."""
