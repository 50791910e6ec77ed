"""Who takes part: clients with their roles, the hosts that hold many of them, and the PKI."""
