"""Rows of a round's tables, and reading of tables from a run's directory.

While a run is in progress, a table has one file per round (``parts/``); a merged table says in its metadata up to which
round it is merged. A stage that asks the whole population has a row per client: 10^6 rows for a round of 10^6 clients,
1.9 MB on disk. Such rows are written and merged in blocks, and read in chunks of whole rounds.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from testbed.errors import RunError, reason
from testbed.files import limits
from testbed.files import parquet as parquet_files
from testbed.files.parquet_bounds import too_large
from testbed.network.exchanges import OUTCOMES, Exchanges
from testbed.network.recorder import Event
from testbed.records.arrays import Checkpoint
from testbed.records.former_codes import with_current_names
from testbed.records.schemas import OPTIONAL_TABLES, SCHEMAS


def _words(codes: Any, words: tuple[str, ...]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int16()), pa.array(words, pa.string()))


BLOCK_ROWS = 1 << 18
"""Number of rows of a round in memory at a time while they are written."""


def exchanges_tables(round_number: int, stages: Sequence[Exchanges]) -> Iterator[pa.Table]:
    """Yield the `exchanges` rows of one round, at most `BLOCK_ROWS` at a time.

    Args:
        round_number: the round.
        stages: the exchanges of its stages.
    """
    names = tuple(dict.fromkeys(stage.stage for stage in stages))
    pending: list[Exchanges] = []
    rows = 0
    for part in (part for stage in stages for part in stage.blocks(BLOCK_ROWS)):
        if rows + len(part.clients) > BLOCK_ROWS:
            yield _exchanges_block(round_number, pending, names)
            pending, rows = [], 0
        pending.append(part)
        rows += len(part.clients)
    yield _exchanges_block(round_number, pending, names)


def exchanges_table(round_number: int, stages: Sequence[Exchanges]) -> pa.Table:
    """Return the `exchanges` rows of one round.

    Args:
        round_number: the round.
        stages: the exchanges of its stages.
    """
    return pa.concat_tables(exchanges_tables(round_number, stages))


def _exchanges_block(round_number: int, stages: Sequence[Exchanges], names: tuple[str, ...]) -> pa.Table:
    """Return the rows of some stages or parts of stages; `names` are the names of all stages of the round."""
    schema = SCHEMAS["exchanges"]
    if not stages:
        return schema.empty_table()

    def join(name: str) -> Any:
        return np.concatenate([getattr(stage, name) for stage in stages])

    def spread(values: list[Any], kind: Any) -> Any:
        return np.repeat(np.asarray(values, kind), [len(stage.clients) for stage in stages])

    # NaN (no answer) becomes null in the table: other readers of Parquet count NaN as a number.
    received = join("received_s")
    columns = {
        "round": spread([round_number] * len(stages), np.int32),
        "stage": _words(spread([names.index(stage.stage) for stage in stages], np.int16), names),
        "client": join("clients"),
        "sent_s": spread([stage.sent_s for stage in stages], np.float64),
        "received_s": pa.array(received, mask=np.isnan(received)),
        "outcome": _words(join("outcome").astype(np.int16), OUTCOMES),
        "as_participant": spread([stage.as_participant for stage in stages], np.bool_),
    }
    columns |= {name: join(name) for name in schema.names if name not in columns}
    return pa.table([columns[name] for name in schema.names], schema=schema)


def events_table(round_number: int, events: list[Event]) -> pa.Table:
    """Return the `events` rows of one round.

    Args:
        round_number: the round.
        events: in their order.
    """
    rows = [
        {"round": round_number, "stage": e.stage, "party": e.party, "kind": e.kind, "detail": e.detail} for e in events
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMAS["events"])


def participation_table(
    round_number: int, participants: Any, survivors: Any, dishonest: Collection[int] = ()
) -> pa.Table:
    """Return the `participation` rows of one round.

    Args:
        round_number: the round.
        participants: `(p,)` clients.
        survivors: the survivors among them.
        dishonest: clients that work for a malicious server.
    """
    return pa.table(
        [
            np.full(len(participants), round_number, np.int32),
            np.asarray(participants, np.int64),
            np.isin(participants, survivors),
            np.isin(participants, list(dishonest)),
        ],
        schema=SCHEMAS["participation"],
    )


def privacy_table(round_number: int, columns: Mapping[str, Any]) -> pa.Table:
    """Return the `privacy` rows of one round.

    Args:
        round_number: the round.
        columns: all other columns, `(k,)` each; NaN for a missing number.
    """
    schema = SCHEMAS["privacy"]
    count = len(columns["client"])
    arrays = [
        np.full(count, round_number, np.int32) if name == "round" else pa.array(columns[name], from_pandas=True)
        for name in schema.names
    ]
    return pa.table(arrays, schema=schema)


def staleness_table(round_number: int, columns: Mapping[str, Any]) -> pa.Table:
    """Return the `staleness` rows of one round.

    Args:
        round_number: the round.
        columns: all other columns, `(k,)` each.
    """
    count = len(columns["client"])
    return pa.table(
        [np.full(count, round_number, np.int32), *(columns[name] for name in SCHEMAS["staleness"].names[1:])],
        schema=SCHEMAS["staleness"],
    )


def with_later_columns(table: pa.Table) -> pa.Table:
    """Return `table` with 0 (or false) in columns that its version of the records did not have.

    The value is right: runs of these versions had no such traffic, misbehaviour or delay.
    """
    for column, none in (("transport_down", 0), ("transport_up", 0), ("dishonest", False), ("behind_s", 0.0)):
        at = table.schema.get_field_index(column)
        if at >= 0 and table.column(at).null_count:
            table = table.set_column(at, table.schema.field(at), table.column(at).fill_null(none))
    return table


ROWS = 1 << 20
"""Number of rows in a chunk, unless a single round has more; also in a row group of a merged table."""


def read_chunks(files: Sequence[Path], name: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Yield the rows of a table, in order, in chunks of whole rounds of about `ROWS` rows.

    Args:
        files: Parquet files in the order of the rounds; no round is spread over two files.
        name: of the table.
        columns: columns to read, including ``round``; default: all.

    Raises:
        RunError: a file is damaged or missing, or a single round needs more memory than `limits.table_bytes`.
    """
    pending: list[pa.Table] = []
    rows = 0
    for file in files:
        try:
            for batch in _batches(file, name, columns):
                begins = _last_round_begins(batch)
                # A round may be spread over batches; cut only where the next round begins.
                goes_on = not begins and pending and pending[-1]["round"][-1] == batch["round"][0]
                if rows + begins >= ROWS and not goes_on:
                    yield joined([*pending, batch[:begins]])
                    pending, rows, batch = [], 0, batch[begins:]
                pending.append(batch)
                rows += len(batch)
                if (size := sum(table.nbytes for table in pending)) > limits.table_bytes():  # a single round
                    raise too_large(rows, size)
        except (OSError, pa.ArrowException, limits.TooLarge) as error:
            raise damaged(file, name, error) from None
    if pending:
        yield joined(pending)


def write_merged(file: IO[bytes], parts: Sequence[Path], name: str, metadata: dict[bytes, bytes]) -> None:
    """Write the rows of several files as one table; about `ROWS` rows are in memory at a time.

    Args:
        file: open for writing.
        parts: Parquet files in the order of the rounds.
        name: of the table.
        metadata: of the merged table.

    Raises:
        RunError: as `read_chunks`.
    """
    pending: list[pa.Table] = []
    with parquet_files.writer(file, SCHEMAS[name].with_metadata(metadata)) as writer:
        for part in parts:
            try:
                for batch in _batches(part, name, None):
                    pending.append(batch)
                    if sum(map(len, pending)) >= ROWS:
                        writer.write_table(joined(pending).replace_schema_metadata(metadata), row_group_size=ROWS)
                        pending = []
            except (OSError, pa.ArrowException) as error:
                raise damaged(part, name, error) from None
        if pending:
            writer.write_table(joined(pending).replace_schema_metadata(metadata), row_group_size=ROWS)


def _batches(file: Path, name: str, columns: Sequence[str] | None) -> Iterator[pa.Table]:
    import pyarrow.dataset as ds  # imports pandas, which code that only writes records does not need

    column_names = list(SCHEMAS[name].names if columns is None else columns)
    parquet_files.verified(file)
    options = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    parquet = ds.ParquetFileFormat(default_fragment_scan_options=options)
    data = ds.dataset(str(file), schema=SCHEMAS[name], format=parquet)
    for batch in data.to_batches(columns=column_names, batch_size=ROWS // 4, batch_readahead=1, fragment_readahead=1):
        if len(batch):
            yield with_later_columns(pa.Table.from_batches([batch]))


def _last_round_begins(rows: pa.Table) -> int:
    """Return the index of the first row of the last round."""
    rounds = rows["round"].to_numpy()
    return int(np.searchsorted(rounds, rounds[-1]))


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of all tables, in their order; equal words have equal codes throughout."""
    # Each file has its own codes for words: without this, one word would have several codes in a column.
    return pa.concat_tables([table.unify_dictionaries() for table in tables]).unify_dictionaries()


def damaged(path: Path, name: str, error: Exception) -> RunError:
    """Return the error for a table that cannot be read.

    Args:
        path: of the file, or of the run's directory.
        name: of the table.
        error: from pyarrow or the system.
    """
    return RunError(f"{path}: the table {name!r} is damaged or incomplete: {reason(error)}")


MERGED_UP_TO = b"testbed.merged_up_to_round"


def has_table(path: Path, name: str, checkpoint: Checkpoint | None) -> bool:
    """Return whether a run has a table at all (see `OPTIONAL_TABLES`): in its last round or merged.

    Args:
        path: the run directory.
        name: of the table.
        checkpoint: of the run; None: no round has ended.
    """
    last = checkpoint.round_number if checkpoint is not None else 0
    file = f"{name}.parquet"  # parts first: they are deleted only after the merged table is written
    return name not in OPTIONAL_TABLES or (part_of(path, last) / file).is_file() or (path / file).is_file()


def recorded_files(path: Path, name: str, checkpoint: Checkpoint | None) -> list[Path]:
    """Return the files with a table's rows, in the order of the rounds.

    Args:
        path: the run directory.
        name: of the table.
        checkpoint: of the run; None: no round has ended.

    Raises:
        RunError: the merged table is damaged.
    """
    if not has_table(path, name, checkpoint):
        return []
    merged = path / f"{name}.parquet"
    last = checkpoint.round_number if checkpoint is not None else 0
    covered = merged_up_to(merged) if merged.is_file() else 0
    parts = [part_of(path, number) / f"{name}.parquet" for number in range(covered + 1, last + 1)]
    return [merged, *parts] if merged.is_file() else parts


def read_table(path: Path, name: str, checkpoint: Checkpoint | None) -> pa.Table:
    """Return a table: merged rows, then the parts of later rounds up to the checkpoint.

    Args:
        path: the run directory.
        name: of the table.
        checkpoint: of the run; None: no round has ended.

    Raises:
        RunError: a file is damaged, or a finished round is missing.
    """
    if not has_table(path, name, checkpoint):
        return SCHEMAS[name].empty_table()
    last = checkpoint.round_number if checkpoint is not None else 0
    merged = path / f"{name}.parquet"
    while True:
        covered, tables = 0, [SCHEMAS[name].empty_table()]
        try:
            if merged.is_file():
                covered = merged_up_to(merged)
                tables.append(_read(merged, name))
            for number in range(covered + 1, last + 1):
                tables.append(_read(part_of(path, number) / f"{name}.parquet", name))
        except (OSError, pa.ArrowException) as error:
            if merged.is_file() and covered < merged_up_to(merged):
                continue  # the run has finished meanwhile, and the part was merged into the table
            raise damaged(path, name, error) from None
        return with_current_names(joined(tables), name)


def _read(file: Path, name: str) -> pa.Table:
    return with_later_columns(parquet_files.read_table(file, SCHEMAS[name]))


def part_of(path: Path, round_number: int) -> Path:
    """Return the folder of one round's rows while the run is in progress.

    Args:
        path: the run directory.
        round_number: the round.
    """
    return path / "parts" / f"round-{round_number:06d}"


def merged_up_to(path: Path) -> int:
    """Return the round up to which a table of a finished run is merged.

    Raises:
        RunError: the file is damaged or not a merged table.
    """
    try:
        return int((parquet_files.read_schema(path).metadata or {})[MERGED_UP_TO])
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        raise RunError(f"{path}: not a table of a finished run, or damaged ({type(error).__name__})") from None


STOPPED = "stopped"
"""Kind of the event that records why a run ended early."""


def stopped(path: Path, last_round: int) -> str:
    """Return why a run ended after its last round, in one line; empty if the run may continue.

    Args:
        path: the run directory.
        last_round: of the checkpoint.

    Raises:
        RunError: the events of that round cannot be read.
    """
    if last_round == 0:
        return ""
    columns = ["round", "kind", "detail"]
    try:
        try:
            part = part_of(path, last_round) / "events.parquet"
            rows = parquet_files.read_table(part, columns=columns, as_objects=True)
        except FileNotFoundError:  # merged
            rows = parquet_files.read_table(path / "events.parquet", columns=columns, as_objects=True)
    except (OSError, pa.ArrowException) as error:
        raise damaged(path, "events", error) from None
    details = [row["detail"] for row in rows.to_pylist() if row["round"] == last_round and row["kind"] == STOPPED]
    return str(details[0]) if details else ""
