"""One run: its plan, its rounds, and how they are recorded. Nothing here knows where the clients live."""
