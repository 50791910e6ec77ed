"""Parquet files that detect damage, by checksums of their pages and a digest of the whole file in the footer.

Parquet's page checksums (CRC-32) cover the content of pages. They do not cover page headers, statistics and the footer,
where one flipped bit can turn a count, an encoding or a column's offset into another valid one. So every file that is
written here has one more entry in its footer, under `KEY`: the SHA-256 of the file with 64 zeros in the digest's place.
The digest is part of the file, so both are written, copied and fetched together. A table that is read and written again
by pyarrow or pandas has no digest.

The digest detects accidents: flipped bits, truncated and overwritten files. It is no signature, as a program that can
write the file can write its digest. Files without a digest (from earlier versions or other programs) are read
unchecked.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from testbed.files import limits
from testbed.files import parquet_bounds as bounds

KEY = b"testbed.sha256"
_DIGITS = 64
_ZEROS = b"0" * _DIGITS
_MARKER = KEY + b"\x18\x40"  # the key, and Thrift's compact header of a string of 64 bytes
_TAIL_BYTES = 1 << 20  # least part of the file's end that is searched for the footer's metadata
_LARGEST_FOOTER_BYTES = 256 << 20
_BLOCK_BYTES = 1 << 20


@contextmanager
def writer(file: IO[bytes], schema: pa.Schema, **options: Any) -> Iterator[pq.ParquetWriter]:
    """Yield a Parquet writer with page checksums; the digest is added when all is written.

    Args:
        file: open for writing, seekable, at its beginning.
        schema: schema of the rows, with the file's metadata.
        options: further options of `pyarrow.parquet.ParquetWriter`.
    """
    sealing = _Sealing(file)
    with pq.ParquetWriter(sealing, schema, compression="zstd", write_page_checksum=True, **options) as opened:
        yield opened
        # Zeros hold the digest's place in the footer: the digest cannot cover itself.
        opened.add_key_value_metadata({KEY.decode(): _ZEROS.decode()})
    sealing.seal()


def write_table(table: pa.Table, file: IO[bytes]) -> None:
    """Write `table` as a file; see `writer`.

    Args:
        table: the rows.
        file: open for writing, seekable, at its beginning.
    """
    write_blocks([table], table.schema, file)


def write_blocks(blocks: Iterable[pa.Table], schema: pa.Schema, file: IO[bytes]) -> None:
    """Write tables with the same columns, one after the other, as one file; see `writer`.

    Args:
        blocks: the tables.
        schema: their schema.
        file: open for writing, seekable, at its beginning.
    """
    with writer(file, schema) as opened:
        for block in blocks:
            opened.write_table(block)


def verified(path: Path) -> bool:
    """Check the file's digest, and return whether it has one.

    Raises:
        pyarrow.ArrowInvalid: the bytes have changed since they were written.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        place = _place_of_digest(file)
        if place is None:
            return False
        digest = hashlib.sha256()
        file.seek(0)
        _update(digest, file, place)
        written = file.read(_DIGITS)
        digest.update(_ZEROS)
        _update(digest, file, None)
    if digest.hexdigest().encode() != written:
        raise pa.ArrowInvalid("its SHA-256 digest does not match: bytes have changed since it was written")
    return True


def has_digest(path: Path) -> bool:
    """Return whether the file has a digest for `verified`; raises OSError if the file cannot be read."""
    with open(path, "rb") as file:
        return _place_of_digest(file) is not None


def read_table(
    path: Path, schema: pa.Schema | None = None, columns: Sequence[str] | None = None, *, as_objects: bool = False
) -> pa.Table:
    """Return a file's rows, after checking its digest and page checksums, if it has them.

    Args:
        path: the file.
        schema: schema of the result; missing columns are null.
        columns: columns to read; default: all.
        as_objects: whether the values become Python objects, which take more memory: the limit is lower.

    Raises:
        pyarrow.ArrowException, OSError: damaged, cannot be read, or takes too much memory (`check_rows`).
    """
    verified(path)
    names = None if columns is None else list(columns)
    with opened(path) as file:
        try:
            check_rows(file, names, as_objects)
            bounds.check_texts(path, file, names, as_objects)
        except limits.TooLarge as why:
            raise pa.ArrowInvalid(str(why)) from None
        if schema is None:
            return file.read(names)
    return pq.read_table(path, schema=schema, columns=names, page_checksum_verification=True)


def has_rows(path: Path) -> bool:
    """Return whether a file has rows, by its footer, after checking its digest; raises as `read_table`."""
    verified(path)
    return bool(pq.read_metadata(path).num_rows)


def read_schema(path: Path) -> pa.Schema:
    """Return a file's columns and metadata without checks; raises as `read_table`."""
    return pq.read_schema(path)


def opened(source: Any, **options: Any) -> pq.ParquetFile:
    """Return a `pyarrow.parquet.ParquetFile` of any origin, with verification of page checksums."""
    return pq.ParquetFile(source, page_checksum_verification=True, **options)


def read_opened(source: Any, as_objects: bool = False) -> pa.Table:
    """Return all rows of a file of any origin, within the limits.

    A few bytes of Parquet can stand for any number of rows.

    Args:
        source: a path, or a file of pyarrow's.
        as_objects: see `read_table`.

    Raises:
        limits.TooLarge: more values or bytes than allowed for a table that is read as a whole.
        pyarrow.ArrowException, OSError: damaged, or cannot be read.
    """
    with opened(source) as file:
        check_rows(file, as_objects=as_objects)
        bounds.check_texts(source, file, None, as_objects)
        return file.read()


def check_rows(file: pq.ParquetFile, columns: Sequence[str] | None = None, as_objects: bool = False) -> None:
    """Raise if an open file has, by its footer, more rows than can be read as a whole.

    Args:
        file: only its footer is read.
        columns: columns to read; default: all.
        as_objects: see `read_table`.

    Raises:
        limits.TooLarge: too many rows, values or bytes.
    """
    bounds.check_bytes(file, columns, as_objects)
    rows, width = file.metadata.num_rows, max(1, file.metadata.num_columns)
    if rows > limits.TABLE_ROWS or rows * width > limits.TABLE_VALUES:
        most = f"{limits.TABLE_ROWS} rows and {limits.TABLE_VALUES} values"
        raise limits.TooLarge(f"{rows} rows of {width} columns; at most {most} are allowed")


def _place_of_digest(file: IO[bytes]) -> int | None:
    """Return the offset of the digest in the file; None if there is none."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 8))  # the footer's length, which may be damaged, and Parquet's magic number
    footer_size = int.from_bytes(file.read(4), "little") + 8
    start = file.seek(max(0, size - max(_TAIL_BYTES, min(footer_size, _LARGEST_FOOTER_BYTES))))
    # The last occurrence: a value in the data may contain the marker, too.
    at = file.read().rfind(_MARKER)
    return None if at < 0 or start + at + len(_MARKER) + _DIGITS > size else start + at + len(_MARKER)


def _update(digest: Any, file: IO[bytes], size: int | None) -> None:
    """Add the next `size` bytes of the file, or all remaining ones, to the digest."""
    while block := file.read(_BLOCK_BYTES if size is None else min(size, _BLOCK_BYTES)):
        digest.update(block)
        size = None if size is None else size - len(block)


class _Sealing:
    """File wrapper that passes on all writes, and computes their digest and its place."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self._before = b""  # the end of the last write, as the marker may be split between two writes
        self._size = 0
        self._place = -1
        self.closed = False

    def write(self, data: Any) -> int:
        content = bytes(data)
        self._digest.update(content)
        window = self._before + content
        # Each later occurrence replaces an earlier one, as in `_place_of_digest`: the footer comes last.
        if (at := window.rfind(_MARKER + _ZEROS)) >= 0:
            self._place = self._size - len(self._before) + at + len(_MARKER)
        self._before = window[-len(_MARKER + _ZEROS) :]
        self._size += len(content)
        self._file.write(content)
        return len(content)

    def seal(self) -> None:
        """Write the digest into its place."""
        if self._place < 0:
            raise pa.ArrowInvalid("pyarrow wrote no entry for the file's digest")
        self._file.seek(self._place)
        self._file.write(self._digest.hexdigest().encode())
        self._file.seek(0, os.SEEK_END)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        self._file.flush()

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """Mark this wrapper as closed; the owner closes the file."""
        self.closed = True
