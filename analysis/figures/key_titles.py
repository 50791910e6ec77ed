"""Names of an experiment's keys as titles of axes and legends, with their units."""

_UNITS = {
    "_mbit_s": "Mbit/s",
    "_ms": "ms",
    "_s": "s",
    "_bytes": "bytes",
}
_PLAIN = ("participants", "population", "rounds", "epochs", "bits", "seed")
"""Last parts of a key that say enough by themselves, as do those of several words."""


def key_title(key: str) -> str:
    """What a key is called beside an axis: ``links.up_mbit_s`` is ``Links up [Mbit/s]``.

    Args:
        key: dotted.
    """
    unit = next((suffix for suffix in _UNITS if key.endswith(suffix)), "")
    parts = key.removesuffix(unit).split(".") if unit else key.split(".")
    last = parts[-1].replace("_", " ")
    above = parts[-2].replace("_", " ") if len(parts) > 1 else ""
    says_enough = not above or last in _PLAIN or " " in last
    title = last if says_enough else f"{above} {last}"
    title = title[:1].upper() + title[1:]
    return f"{title} [{_UNITS[unit]}]" if unit else title
