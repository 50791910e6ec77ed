"""How many examples hypothesis tries: fewer in `make test`, all of them in `make test-all`."""

import os

THOROUGH = os.environ.get("TESTBED_TESTS") == "thorough"
USUAL = 100  # hypothesis' own


def examples(thorough: int = USUAL) -> int:
    """For `settings(max_examples=...)`: all where the suite is thorough, elsewhere a third of them, at least 10."""
    return thorough if THOROUGH else min(thorough, max(10, thorough // 3))
