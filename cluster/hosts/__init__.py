"""The hosts of a run on Ray: actors, where they are placed, sums on their way to the server, sessions."""
