"""Commands of `testbed` that read records of runs, or compute the guarantees of papers."""
