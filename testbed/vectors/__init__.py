"""Vectors in messages, dense or compressed, and their encoding."""
