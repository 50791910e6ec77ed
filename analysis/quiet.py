"""Keeping a library's own prints out of our standard output, which scripts parse."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def standard_output_silenced() -> Iterator[None]:
    """Drop what the block prints, from C above all.

    HiGHS prints a line of its own in some searches and has no option that stops it.
    """
    c_library = ctypes.CDLL(None)
    sys.stdout.flush()
    c_library.fflush(None)
    kept = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    try:
        yield
    finally:
        sys.stdout.flush()
        c_library.fflush(None)
        os.dup2(kept, 1)
        os.close(kept)
