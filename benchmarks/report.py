"""How every benchmark reads its options and prints its result."""

import argparse
import json
from collections.abc import Mapping, Sequence

REQUIRED = ("seconds", "floor_seconds", "ratio")
"""Keys of every result: the measured time, the time of the floor in the same process, and their ratio."""


def arguments(description: str, *more_formats: str) -> argparse.ArgumentParser:
    """A parser that already knows ``--format``; a benchmark adds its own options and formats."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument(
        "--format", choices=("text", "json", *more_formats), default="text", help="a table, or one flat JSON object"
    )
    return parser


def emit(result: Mapping[str, object], rows: Sequence[Mapping[str, object]], as_json: bool) -> None:
    """Print a result on standard output.

    Args:
        result: flat, and holding at least ``seconds``, ``floor_seconds`` and ``ratio``.
        rows: the table for people; its columns are the first row's keys.
        as_json: one JSON object on one line, instead of the table with the result below it.

    Raises:
        ValueError: if the result lacks one of the three, or a value is a list or a mapping.
    """
    missing = [key for key in REQUIRED if key not in result]
    if missing:
        raise ValueError(f"a benchmark's result must hold {', '.join(REQUIRED)}; missing: {', '.join(missing)}")
    nested = [key for key, value in result.items() if isinstance(value, (list, tuple, dict, set))]
    if nested:
        raise ValueError(f"a benchmark's result is flat; not so: {', '.join(nested)}")
    if as_json:
        print(json.dumps({key: _plain(value) for key, value in result.items()}))
        return
    if rows:
        print(table(rows))
        print()
    width = max(len(key) for key in result)
    for key, value in result.items():
        print(f"{key:<{width}}  {_cell(value)}")


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows as text in aligned columns, numbers to the right; no trailing newline.

    Args:
        rows: at least one; the first one's keys are the columns, later ones may leave some out.
    """
    columns = list(rows[0])
    cells = [columns, *([_cell(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(columns))]
    numeric = [all(isinstance(row.get(column), (int, float, type(None))) for row in rows) for column in columns]
    lines = [
        "  ".join(
            f"{cell:>{width}}" if right else f"{cell:<{width}}"
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in cells
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def _cell(value: object) -> str:
    plain = _plain(value)
    if plain is None:
        return ""
    if isinstance(plain, float):
        return f"{plain:,.4g}" if abs(plain) < 1e4 else f"{plain:,.0f}"
    return f"{plain:,}" if isinstance(plain, int) and not isinstance(plain, bool) else str(plain)


def _plain(value: object) -> object:
    """A number of numpy's as Python's own, anything else as it is."""
    item = getattr(value, "item", None)
    return item() if callable(item) else value
