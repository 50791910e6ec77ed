"""The parties of a run: clients with their roles, the hosts that hold many clients, the PKI and the round beacon."""
