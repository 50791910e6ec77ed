"""The `testbed` command, a thin layer over the library."""
