"""Traces of measured behaviour: availability of devices, rates of links, and recorded dropouts."""
