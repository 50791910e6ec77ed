"""Malicious servers of selection protocols, by what they attack; `lotto` is what those of Lotto share."""
