"""Experiments as Ray jobs: packaging, submission to a cluster, and return of the results."""
