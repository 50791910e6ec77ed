"""JSON files of other projects, read as a whole; an unreadable file is refused in one line."""

import json
from pathlib import Path
from typing import Any, NoReturn

from testbed.emulation.traces.text_files import reading, shown
from testbed.errors import TraceError
from testbed.files import limits


def read_json(path: Path, expected: str) -> Any:
    """Read the document in a JSON file.

    Args:
        path: the file; it is read as a whole.
        expected: the expected content, for messages.

    Raises:
        TraceError: the file cannot be read, is not JSON, or holds NaN or Infinity.
    """

    def no_number(text: str) -> NoReturn:
        raise TraceError(f"{path}: {text} is not a number in JSON; correct it")

    with reading(path, expected):
        text = limits.text(path, limits.TRACE_BYTES, "utf-8-sig")
    try:
        return json.loads(text, parse_constant=no_number)
    except json.JSONDecodeError as error:
        raise TraceError(f"{path}: not JSON (line {error.lineno}: {error.msg}); {expected}") from None
    except (RecursionError, ValueError):  # nested too deep; a number of thousands of digits
        raise TraceError(f"{path}: not JSON that can be read; {expected}") from None


def read_object(path: Path, expected: str) -> dict[str, dict[str, Any]]:
    """Read a JSON object of objects, by name.

    Args:
        path: the file.
        expected: the expected content, for messages.

    Raises:
        TraceError: as `read_json`, and for any other document.
    """
    document = read_json(path, expected)
    if not isinstance(document, dict) or not document:
        kind = "an empty object" if document == {} else f"a {type(document).__name__}"
        raise TraceError(f"{path}: {kind} in JSON; {expected}")
    for name, entry in document.items():
        if not isinstance(entry, dict):
            raise TraceError(f"{path}: device {shown(name)}: a {type(entry).__name__}, not an object; {expected}")
    return document
