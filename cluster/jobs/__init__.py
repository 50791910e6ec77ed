"""Experiments as Ray jobs: what is sent, how a cluster is spoken to, how results come back."""
