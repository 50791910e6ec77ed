"""Training and time values that the reproductions set themselves, so that no later default changes a kept result."""

from collections.abc import Mapping
from typing import Any

WORKLOAD: Mapping[str, Any] = {"epochs": 1, "batch_size": 20, "learning_rate": 0.05, "momentum": 0.9}
"""Keys of `workload`; a reproduction replaces those that its paper states."""

TIME: Mapping[str, Any] = {"disconnects": "invisible", "deadline_s": 60.0}
"""Keys of `time`, likewise."""
