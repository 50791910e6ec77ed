"""Correlated noise: matrix mechanisms whose noise of one round takes back some of that of the rounds before."""
