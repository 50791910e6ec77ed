"""LightSecAgg (So et al., MLSys 2022, arXiv 2109.14236): U holders of coded masks decode the sum of the masks."""
