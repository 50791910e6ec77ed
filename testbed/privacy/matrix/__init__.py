"""Correlated noise: matrix mechanisms, in which the noise of a round cancels part of that of the rounds before."""
