"""Reading a report back: its facts, and the rounds as the page's script unpacks them."""

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np


class Scripts(HTMLParser):
    """The contents of the page's script elements by their id, and all tags with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.by_id: dict[str, str] = {}
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._open: str | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = str(dict(attrs).get("id", "own")) if tag == "script" else None

    def handle_endtag(self, tag: str) -> None:
        self._open = None

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            self.by_id[self._open] = self.by_id.get(self._open, "") + data


def facts_of(page: str) -> dict[str, Any]:
    """What the page says."""
    return dict(json.loads(Scripts(page).by_id["facts"]))


def rounds_of(page: str, place: int) -> dict[str, Any]:
    """The round explorer's data of a run: the header, and under ``column`` the columns, clients as they are."""
    return unpacked(base64.b64decode(Scripts(page).by_id[f"rounds-{place}"]))


def unpacked(block: bytes) -> dict[str, Any]:
    """The same from what is in the page."""
    data = gzip.decompress(block)
    length = int.from_bytes(data[:4], "little")
    header = dict(json.loads(data[4 : 4 + length]))
    at, columns = 4 + length, {}
    for name, size in header["columns"].items():
        planes = np.frombuffer(data, np.uint8, header["rows"] * size, at).reshape(size, -1)
        columns[name] = sum(plane.astype(np.uint64) << (8 * place) for place, plane in enumerate(planes))
        at += header["rows"] * size
    assert at == len(data)
    columns["client"] = np.cumsum(columns["client"]) % 2**32
    return header | {"column": columns}


def values(sheet: dict[str, Any], head: str) -> list[Any]:
    """By what the cells of a table's column sort; `head`: how the column's begins."""
    (place,) = [number for number, one in enumerate(sheet["heads"]) if re.sub(r" \[.*\]$", "", one) == head]
    return [row[place][1] for row in sheet["rows"]]
