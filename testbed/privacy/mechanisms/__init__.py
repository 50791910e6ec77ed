"""Noise: how it is drawn, encoded and added."""
