"""Tables that do not fit into memory, a chunk of whole rounds at a time.

A stage that asks the whole population has a row per client: 10^6 rows and 90 MB of memory for a round of 10^6 clients,
1.3 MB on disk. What reads or merges such a run takes it in chunks.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa

from testbed.errors import RunError, reason
from testbed.files import parquet as parquet_files
from testbed.records.tables import SCHEMAS, with_later_columns

ROWS = 1 << 20
"""Rows of a chunk, unless a single round has more; also of a row group of a merged table."""


def read_chunks(files: Sequence[Path], name: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """The rows of a table, in order, in chunks of whole rounds of about `ROWS` rows.

    Args:
        files: Parquet files in the order of the rounds; no round lies in two of them.
        name: the table's.
        columns: those wanted, ``round`` among them; default: all.

    Raises:
        RunError: a file is damaged, or has gone.
    """
    pending: list[pa.Table] = []
    rows = 0
    for file in files:
        try:
            for batch in _batches(file, name, columns):
                begins = _last_round_begins(batch)
                goes_on = not begins and pending and pending[-1]["round"][-1] == batch["round"][0]
                if rows + begins >= ROWS and not goes_on:
                    yield joined([*pending, batch[:begins]])
                    pending, rows, batch = [], 0, batch[begins:]
                pending.append(batch)
                rows += len(batch)
        except (OSError, pa.ArrowException) as error:
            raise damaged(file, name, error) from None
    if pending:
        yield joined(pending)


def write_merged(file: IO[bytes], parts: Sequence[Path], name: str, metadata: dict[bytes, bytes]) -> None:
    """Write the rows of several files as one table, with `metadata` of its own; a chunk is in memory at a time.

    Raises as `read_chunks` does.
    """
    with parquet_files.writer(file, SCHEMAS[name].with_metadata(metadata)) as writer:
        for chunk in read_chunks(parts, name):
            writer.write_table(chunk.replace_schema_metadata(metadata), row_group_size=ROWS)


def _batches(file: Path, name: str, columns: Sequence[str] | None) -> Iterator[pa.Table]:
    import pyarrow.dataset as ds  # imports pandas, and not everything that knows of records reads them

    wanted = list(SCHEMAS[name].names if columns is None else columns)
    parquet_files.verified(file)
    options = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    parquet = ds.ParquetFileFormat(default_fragment_scan_options=options)
    data = ds.dataset(str(file), schema=SCHEMAS[name], format=parquet)
    for batch in data.to_batches(columns=wanted, batch_size=ROWS // 4, batch_readahead=1, fragment_readahead=1):
        if len(batch):
            yield with_later_columns(pa.Table.from_batches([batch]))


def _last_round_begins(rows: pa.Table) -> int:
    """Where in the rows the last round begins that they hold any of."""
    rounds = rows["round"].to_numpy()
    return int(np.searchsorted(rounds, rounds[-1]))


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of all tables, in their order; the same words have the same codes throughout."""
    return pa.concat_tables([table.unify_dictionaries() for table in tables]).unify_dictionaries()


def damaged(path: Path, name: str, error: Exception) -> RunError:
    """What to raise when a table cannot be read.

    Args:
        path: its file, or its run's directory.
        name: the table's.
        error: pyarrow's, or the system's.
    """
    return RunError(f"{path}: the table {name!r} is damaged or incomplete: {reason(error)}")
