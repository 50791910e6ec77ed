"""Match messages by the keys, values and codes that they name, so that their wording can improve."""

import re

__all__ = ["naming"]


def naming(*parts: object) -> str:
    """Return a regular expression that matches texts in which all parts occur, in any order.

    For ``pytest.raises(..., match=naming("aggregation.threshold", 1.5))``.

    Args:
        parts: keys, values, file names, codes; each is matched literally, but not inside of a longer word or number.

    Example:
        >>> import re
        >>> bool(re.search(naming("time.deadline_s", -1), "time.deadline_s: must be positive, not -1"))
        True
        >>> bool(re.search(naming("round", 1), "round 10 was aborted"))
        False
    """
    if not parts:
        raise ValueError("naming() needs at least one part: without any it would match every message")
    return "(?s)" + "".join(f"(?=.*{_whole(str(part))})" for part in parts)


def _whole(part: str) -> str:
    """Return the pattern of `part` with word boundaries where it begins or ends with a letter or digit."""
    before = r"(?<!\w)" if re.match(r"\w", part) else ""
    after = r"(?!\w)" if re.search(r"\w$", part) else ""
    return before + re.escape(part) + after
