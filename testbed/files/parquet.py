"""Parquet files that notice damage: checksums of their pages, and a digest of the whole file in its footer.

Parquet's page checksums (CRC-32) cover what is in the pages. They do not cover page headers, statistics and the
footer, where one flipped bit turns, say, a count, an encoding or a column's place into another valid one. So every file
that is written here ends with one more entry in its footer, under `KEY`: the SHA-256 of the file as it would be with
64 zeros in the digest's place. It is in the file itself, which therefore appears, is copied and is fetched in one
piece. Whoever reads the table and writes it again, with pyarrow or pandas, makes a file without a digest.

The digest notices accidents: bits that flip, files that are cut off or overwritten. It is no signature: who can write
the file can write its digest. Files without one (of earlier versions, or of other programs) are read as they are.
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
_MARKER = KEY + b"\x18\x40"  # the key, and what Thrift's compact encoding puts before a string of 64 bytes
_TAIL_BYTES = 1 << 20  # of which the footer's metadata are searched for, at least
_LARGEST_FOOTER_BYTES = 256 << 20
_BLOCK_BYTES = 1 << 20


@contextmanager
def writer(file: IO[bytes], schema: pa.Schema, **options: Any) -> Iterator[pq.ParquetWriter]:
    """A writer of Parquet with checksums of its pages; the digest is put in when all is written.

    Args:
        file: open for writing, seekable, at its beginning.
        schema: of the rows, with the metadata that the file is to have.
        options: further ones of `pyarrow.parquet.ParquetWriter`.
    """
    sealing = _Sealing(file)
    with pq.ParquetWriter(sealing, schema, compression="zstd", write_page_checksum=True, **options) as opened:
        yield opened
        opened.add_key_value_metadata({KEY.decode(): _ZEROS.decode()})
    sealing.seal()


def write_table(table: pa.Table, file: IO[bytes]) -> None:
    """Write `table` as a file of its own; see `writer`."""
    write_blocks([table], table.schema, file)


def write_blocks(blocks: Iterable[pa.Table], schema: pa.Schema, file: IO[bytes]) -> None:
    """Write tables with the same columns below one another as one file; see `writer`."""
    with writer(file, schema) as opened:
        for block in blocks:
            opened.write_table(block)


def verified(path: Path) -> bool:
    """Whether the file has a digest, which then is that of its bytes; False: it has none, and nothing was checked.

    Raises:
        pyarrow.ArrowInvalid: its bytes are not those that were written.
        OSError: it cannot be read.
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
        raise pa.ArrowInvalid("its SHA-256 digest is not that of what was written: bytes have changed since")
    return True


def has_digest(path: Path) -> bool:
    """Whether `verified` has something to check; raises OSError when the file cannot be read."""
    with open(path, "rb") as file:
        return _place_of_digest(file) is not None


def read_table(
    path: Path, schema: pa.Schema | None = None, columns: Sequence[str] | None = None, *, as_objects: bool = False
) -> pa.Table:
    """A file's rows, after its digest (if it has one) and the checksums of its pages (if they have any) were checked.

    Args:
        path: the file.
        schema: what its columns are to be; those that it lacks are null.
        columns: those wanted; default: all.
        as_objects: whether its values become Python objects, which take more memory: fewer are read.

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
    """Whether a file has any, by its footer, after its digest was checked; raises as `read_table`."""
    verified(path)
    return bool(pq.read_metadata(path).num_rows)


def read_schema(path: Path) -> pa.Schema:
    """A file's columns and metadata; nothing is checked. Raises as `read_table`."""
    return pq.read_schema(path)


def opened(source: Any, **options: Any) -> pq.ParquetFile:
    """A file of any origin, to be read by `pyarrow.parquet.ParquetFile` with the checksums of its pages."""
    return pq.ParquetFile(source, page_checksum_verification=True, **options)


def read_opened(source: Any, as_objects: bool = False) -> pa.Table:
    """All rows of a file of any origin, of which there must not be too many.

    A few bytes of Parquet can stand for any number of rows.

    Args:
        source: a path, or a file of pyarrow's.
        as_objects: see `read_table`.

    Raises:
        limits.TooLarge: more values or bytes than a table that is read as a whole may have.
        pyarrow.ArrowException, OSError: damaged, or cannot be read.
    """
    with opened(source) as file:
        check_rows(file, as_objects=as_objects)
        bounds.check_texts(source, file, None, as_objects)
        return file.read()


def check_rows(file: pq.ParquetFile, columns: Sequence[str] | None = None, as_objects: bool = False) -> None:
    """Raise when an open file says in its footer that it has more than can be read as a whole.

    Args:
        file: nothing but its footer is read.
        columns: those that will be read; default: all.
        as_objects: see `read_table`.

    Raises:
        limits.TooLarge: too many rows, values or bytes.
    """
    bounds.check_bytes(file, columns, as_objects)
    rows, width = file.metadata.num_rows, max(1, file.metadata.num_columns)
    if rows > limits.TABLE_ROWS or rows * width > limits.TABLE_VALUES:
        most = f"{limits.TABLE_ROWS} rows and {limits.TABLE_VALUES} values"
        raise limits.TooLarge(f"{rows} rows of {width} columns; at most {most}")


def _place_of_digest(file: IO[bytes]) -> int | None:
    """Where in the file its digest begins."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 8))  # the footer's length, which may be damaged, and Parquet's magic number
    footer_size = int.from_bytes(file.read(4), "little") + 8
    start = file.seek(max(0, size - max(_TAIL_BYTES, min(footer_size, _LARGEST_FOOTER_BYTES))))
    at = file.read().rfind(_MARKER)
    return None if at < 0 or start + at + len(_MARKER) + _DIGITS > size else start + at + len(_MARKER)


def _update(digest: Any, file: IO[bytes], size: int | None) -> None:
    """Add the next `size` bytes of the file, or all that are left."""
    while block := file.read(_BLOCK_BYTES if size is None else min(size, _BLOCK_BYTES)):
        digest.update(block)
        size = None if size is None else size - len(block)


class _Sealing:
    """Passes on what is written, and knows its digest and where in it the digest belongs."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self._before = b""  # the end of the last piece: what is sought may be cut in two
        self._size = 0
        self._place = -1
        self.closed = False

    def write(self, data: Any) -> int:
        content = bytes(data)
        self._digest.update(content)
        window = self._before + content
        if (at := window.rfind(_MARKER + _ZEROS)) >= 0:
            self._place = self._size - len(self._before) + at + len(_MARKER)
        self._before = window[-len(_MARKER + _ZEROS) :]
        self._size += len(content)
        self._file.write(content)
        return len(content)

    def seal(self) -> None:
        """Put the digest in its place."""
        if self._place < 0:
            raise pa.ArrowInvalid("pyarrow has left no place for the file's digest")
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
        """The file is its owner's to close."""
        self.closed = True
