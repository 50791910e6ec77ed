"""Where a federation runs: Ray actors that hold the clients, the PKI and the coordinator; the session around them."""
