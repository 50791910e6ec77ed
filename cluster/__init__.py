"""Where a federation runs: Ray actors (hosts of clients, PKI, coordinator), sessions, jobs and checks."""
