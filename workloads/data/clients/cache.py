"""Clients' data that are made when they are first needed, and kept while memory allows."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

CACHE_BYTES = 256 * 2**20
"""Bytes that one process keeps."""


class _Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


_Data = TypeVar("_Data", bound=_Sized)


class ClientDataCache(Generic[_Data]):
    """What `make` gives for each client, the last used ones from memory; safe to call from several threads.

    Args:
        make: from a client to its data, always the same.
        capacity: bytes to keep; a client whose data are larger is made each time.

    Attributes:
        nbytes: of all data that are kept.
    """

    def __init__(self, make: Callable[[int], _Data], capacity: int = CACHE_BYTES) -> None:
        self._make = make
        self._capacity = capacity
        self._data: OrderedDict[int, _Data] = OrderedDict()
        self._lock = threading.Lock()
        self.nbytes = 0

    def __call__(self, client: int) -> _Data:
        """The client's data; not to be changed."""
        with self._lock:
            found = self._data.get(client)
            if found is not None:
                self._data.move_to_end(client)
                return found
        made = self._make(client)
        with self._lock:
            if client not in self._data:
                self._data[client] = made
                self.nbytes += made.nbytes
            while self.nbytes > self._capacity:
                _, oldest = self._data.popitem(last=False)
                self.nbytes -= oldest.nbytes
        return made
