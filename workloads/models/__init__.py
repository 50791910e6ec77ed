"""Models for the clients to train."""
