"""File names from text: safe on every file system, and still readable."""

import hashlib
import re
from collections.abc import Sequence

_LONGEST_NAME = 100


def directory_names(labels: Sequence[str]) -> list[str]:
    """A safe and unique directory name for each label, depending on the labels alone."""
    names: list[str] = []
    for label in labels:
        name = file_name(label)
        number = 2
        while name.lower() in {other.lower() for other in names}:  # some file systems do not tell A from a
            name = f"{file_name(label)}-{number}"
            number += 1
        names.append(name)
    return names


def file_name(text: str) -> str:
    """`text` as a name that every file system takes, still readable: only letters, digits and ``._=,+-``."""
    name = re.sub(r"[^A-Za-z0-9._=,+-]+", "-", text).strip("-.") or "run"
    if len(name) > _LONGEST_NAME:
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        name = f"{name[:_LONGEST_NAME]}-{digest}"
    return name
