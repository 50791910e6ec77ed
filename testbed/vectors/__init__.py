"""The vectors that messages carry, dense or compressed, and how they lie on the wire."""
