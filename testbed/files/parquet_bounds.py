"""Bounds on the memory of a Parquet file, checked before it is decoded.

Ten megabytes of Parquet can stand for 80 million rows, because equal values take no space in the file. So the footer's
counts are multiplied by the memory of each value. Texts are stored once in a dictionary and are measured by reading
the dictionary-encoded columns in parts, until the limit is reached: the footer may be wrong.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from testbed.files import limits

_STRETCH_ROWS = 1 << 16
_BYTES = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}


def check_bytes(file: pq.ParquetFile, columns: Sequence[str] | None, as_objects: bool) -> None:
    """Raise if an open file takes too much memory by its footer.

    Args:
        file: its footer is read, and the first row of each row group.
        columns: columns to read; None: all.
        as_objects: see `limits.table_bytes`.

    Raises:
        limits.TooLarge: it takes too much memory.
        pyarrow.ArrowException, OSError: damaged, or cannot be read.
    """
    footer, size, rows = file.metadata, 0, 0
    names = None if columns is None else list(columns)
    for number in range(footer.num_row_groups):
        # Reading a row raises if a column's footer is damaged; `group.column` would crash the process.
        next(file.iter_batches(1, row_groups=[number], columns=names), None)
        group = footer.row_group(number)
        rows += group.num_rows
        for place in range(group.num_columns):
            chunk = group.column(place)
            if columns is None or chunk.path_in_schema.partition(".")[0] in columns:
                width = _BYTES.get(chunk.physical_type) or max(1, footer.schema.column(place).length)
                # The larger count: lists have more values than rows, and a damaged footer may understate either.
                size += max(chunk.num_values, group.num_rows) * width
    if size > limits.table_bytes(as_objects):
        raise too_large(rows, size, as_objects)


def check_texts(source: Any, file: pq.ParquetFile, columns: Sequence[str] | None, as_objects: bool) -> None:
    """Raise if the texts and lists of a file take too much memory by its content.

    Args:
        source: the path, or the open file of pyarrow's, that `file` reads.
        file: the same file, opened.
        columns: columns to read; None: all.
        as_objects: see `limits.table_bytes`.

    Raises:
        limits.TooLarge: they take too much memory.
        pyarrow.ArrowException, OSError: damaged, or cannot be read.
    """
    fields = [field for field in file.schema_arrow if columns is None or field.name in columns]
    names = [field.name for field in fields if not _has_width(field.type)]
    leaves = [file.schema.column(number) for number in range(file.metadata.num_columns)]
    texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]  # also within structs and lists
    size, most = 0, limits.table_bytes(as_objects)
    for name in names:  # one after the other: a page of each may be large
        rows = 0
        with pq.ParquetFile(source, read_dictionary=texts) as again:
            for batch in again.iter_batches(_STRETCH_ROWS, columns=[name]):
                rows += len(batch)
                size += sum(map(_decoded, batch.columns))
                if size > most:
                    raise too_large(rows, size, as_objects)


def too_large(rows: int, size: int, as_objects: bool = False) -> limits.TooLarge:
    """Return the error for a table that takes too much memory.

    Args:
        rows: number of rows, at least.
        size: memory in bytes, at least.
        as_objects: see `limits.table_bytes`.
    """
    most = limits.table_bytes(as_objects)
    needed = -(-size * (limits.AS_OBJECTS if as_objects else 1) // limits.GIB)
    return limits.TooLarge(
        f"{rows:,} rows, which take at least {_rounded(size)} of memory; the limit is {limits.size(most)}; for a file "
        f"that you trust set {limits.TABLE_VARIABLE}={needed}"
    )


def _rounded(size: int) -> str:
    return f"{size / limits.GIB:,.1f} GiB" if size >= limits.GIB else f"{size / limits.MIB:,.0f} MiB"


def _has_width(kind: pa.DataType) -> bool:
    """Return whether all values take the same memory, so that counting is enough."""
    if pa.types.is_dictionary(kind):  # readers may decode the words
        return False
    try:
        return bool(kind.bit_width)
    except ValueError:
        return False


def _decoded(column: pa.Array) -> int:
    """Return the bytes of a batch's column with its words decoded, also within structs and lists."""
    # By the lengths of the words that rows refer to: each word is repeated once it is decoded.
    if isinstance(column, pa.DictionaryArray):
        lengths = pc.take(pc.binary_length(column.dictionary), column.indices)
        return 4 * len(column) + int(pc.sum(lengths).as_py() or 0)
    if isinstance(column, pa.MapArray):
        parts = [column.keys, column.items]
    elif isinstance(column, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray):
        parts = [column.flatten()]
    elif isinstance(column, pa.StructArray):
        parts = [column.field(number) for number in range(column.type.num_fields)]
    else:
        return int(column.nbytes)
    return 4 * len(column) + sum(map(_decoded, parts))
