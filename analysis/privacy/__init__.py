"""Privacy spent by runs: the ledger's table, as text, tables and figures."""
