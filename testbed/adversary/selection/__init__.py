"""Malicious servers of selection protocols, one module for each kind of attack; `lotto` has the shared base classes."""
