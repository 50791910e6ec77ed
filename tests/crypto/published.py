"""Published vectors."""

import json
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).resolve().parents[1] / "vectors"


def vectors(name: str) -> dict[str, Any]:
    """Return the content of tests/vectors/<name>.json."""
    return json.loads((VECTORS / f"{name}.json").read_text())
