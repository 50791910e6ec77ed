"""Files as the testbed reads and writes them: whole or not at all, within limits, also at a URI."""
