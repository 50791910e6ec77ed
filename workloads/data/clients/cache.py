"""Clients' data that are made when they are first needed, and kept while memory allows."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

CACHE_BYTES = 256 * 2**20
"""Bytes that one process keeps."""


class Kept:
    """What `make` gives for each client, the last used ones from memory; safe to call from several threads.

    Args:
        make: from a client to an array, always the same.
        most: bytes to keep; a client whose array is larger is made each time.
    """

    def __init__(self, make: Callable[[int], NDArray[Any]], most: int = CACHE_BYTES) -> None:
        self._make = make
        self._most = most
        self._arrays: OrderedDict[int, NDArray[Any]] = OrderedDict()
        self._lock = threading.Lock()
        self.bytes = 0

    def __call__(self, client: int) -> NDArray[Any]:
        """The client's array; not to be changed."""
        with self._lock:
            found = self._arrays.get(client)
            if found is not None:
                self._arrays.move_to_end(client)
                return found
        made = self._make(client)
        with self._lock:
            if client not in self._arrays:
                self._arrays[client] = made
                self.bytes += made.nbytes
            while self.bytes > self._most:
                _, oldest = self._arrays.popitem(last=False)
                self.bytes -= oldest.nbytes
        return made
