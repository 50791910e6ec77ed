"""Where a federation runs: Ray actors (hosts of clients, PKI, coordinator), the session around them, jobs and checks."""
