"""What privacy runs have spent: the ledger's table, as text, tables and figures."""
