"""The adversary: a server with some decisions overridden, and clients with some handlers overridden; nothing else."""
