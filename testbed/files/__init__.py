"""Files as the testbed reads and writes them: atomically, within size limits, and at URIs."""
