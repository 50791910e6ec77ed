"""The rows of a round, and how tables are read back from a run's directory.

While a run goes on, a table is a file for each round (``parts/``); what is merged says in its metadata up to which
round. A stage that asks the whole population has a row per client: 10^6 rows for a round of 10^6 clients, 1.9 MB on
disk. They are written and merged in blocks; what reads such a run takes it a chunk of whole rounds at a time.
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
from testbed.records.schemas import OPTIONAL_TABLES, SCHEMAS


def _words(codes: Any, words: tuple[str, ...]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int16()), pa.array(words, pa.string()))


BLOCK_ROWS = 1 << 18
"""Rows of a round that are in memory at the same time while they are written."""


def exchanges_tables(round_number: int, stages: Sequence[Exchanges]) -> Iterator[pa.Table]:
    """The `exchanges` rows of one round, at most `BLOCK_ROWS` at a time, each made when it is asked for."""
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
    """The `exchanges` rows of one round."""
    return pa.concat_tables(exchanges_tables(round_number, stages))


def _exchanges_block(round_number: int, stages: Sequence[Exchanges], names: tuple[str, ...]) -> pa.Table:
    """The rows of some stages, or parts of stages; `names` are those of all stages of the round."""
    schema = SCHEMAS["exchanges"]
    if not stages:
        return schema.empty_table()

    def join(name: str) -> Any:
        return np.concatenate([getattr(stage, name) for stage in stages])

    def spread(values: list[Any], kind: Any) -> Any:
        return np.repeat(np.asarray(values, kind), [len(stage.clients) for stage in stages])

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
    """The `events` rows of one round."""
    rows = [
        {"round": round_number, "stage": e.stage, "party": e.party, "kind": e.kind, "detail": e.detail} for e in events
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMAS["events"])


def participation_table(
    round_number: int, participants: Any, survivors: Any, dishonest: Collection[int] = ()
) -> pa.Table:
    """The `participation` rows of one round: `(p,)` participants, the survivors and the dishonest among them."""
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
    """The `privacy` rows of one round: its columns but for the round, `(k,)` each; a missing number is NaN."""
    schema = SCHEMAS["privacy"]
    count = len(columns["client"])
    arrays = [
        np.full(count, round_number, np.int32) if name == "round" else pa.array(columns[name], from_pandas=True)
        for name in schema.names
    ]
    return pa.table(arrays, schema=schema)


def staleness_table(round_number: int, columns: Mapping[str, Any]) -> pa.Table:
    """The `staleness` rows of one round: its columns but for the round, `(k,)` each."""
    count = len(columns["client"])
    return pa.table(
        [np.full(count, round_number, np.int32), *(columns[name] for name in SCHEMAS["staleness"].names[1:])],
        schema=SCHEMAS["staleness"],
    )


def with_later_columns(table: pa.Table) -> pa.Table:
    """`table` with 0 (or false) where a run of an earlier version lacks columns: they say what it did not have."""
    for column, none in (("transport_down", 0), ("transport_up", 0), ("dishonest", False), ("behind_s", 0.0)):
        at = table.schema.get_field_index(column)
        if at >= 0 and table.column(at).null_count:
            table = table.set_column(at, table.schema.field(at), table.column(at).fill_null(none))
    return table


ROWS = 1 << 20
"""Rows of a chunk, unless a single round has more; also of a row group of a merged table."""


def read_chunks(files: Sequence[Path], name: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """The rows of a table, in order, in chunks of whole rounds of about `ROWS` rows.

    Args:
        files: Parquet files in the order of the rounds; no round lies in two of them.
        name: the table's.
        columns: those wanted, ``round`` among them; default: all.

    Raises:
        RunError: a file is damaged, or has gone, or a single round takes more memory than `limits.table_bytes`.
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
                if (size := sum(one.nbytes for one in pending)) > limits.table_bytes():  # a single round
                    raise too_large(rows, size)
        except (OSError, pa.ArrowException, limits.TooLarge) as error:
            raise damaged(file, name, error) from None
    if pending:
        yield joined(pending)


def write_merged(file: IO[bytes], parts: Sequence[Path], name: str, metadata: dict[bytes, bytes]) -> None:
    """Write the rows of several files as one table, with `metadata` of its own; about `ROWS` are in memory at a time.

    Raises as `read_chunks` does.
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


MERGED_UP_TO = b"testbed.merged_up_to_round"


def is_kept(path: Path, name: str, checkpoint: Checkpoint | None) -> bool:
    """Whether a run has a table at all (`OPTIONAL_TABLES`): its last round, or what is merged, has a file for it."""
    last = checkpoint.round_number if checkpoint is not None else 0
    file = f"{name}.parquet"  # parts first: they go only once the merged table is there
    return name not in OPTIONAL_TABLES or (part_of(path, last) / file).is_file() or (path / file).is_file()


def recorded_files(path: Path, name: str, checkpoint: Checkpoint | None) -> list[Path]:
    """The files that hold a table's rows, in the order of the rounds; raises `RunError` for a damaged merged one."""
    if not is_kept(path, name, checkpoint):
        return []
    merged = path / f"{name}.parquet"
    last = checkpoint.round_number if checkpoint is not None else 0
    covered = merged_up_to(merged) if merged.is_file() else 0
    parts = [part_of(path, number) / f"{name}.parquet" for number in range(covered + 1, last + 1)]
    return [merged, *parts] if merged.is_file() else parts


def read_table(path: Path, name: str, checkpoint: Checkpoint | None) -> pa.Table:
    """Merged rows, then the parts of those rounds that the checkpoint vouches for and that are not merged yet.

    Raises `RunError` when a file is damaged, or a finished round is in neither.
    """
    if not is_kept(path, name, checkpoint):
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
                continue  # the run has been finished meanwhile, and the part has gone into the table
            raise damaged(path, name, error) from None
        return joined(tables)


def _read(file: Path, name: str) -> pa.Table:
    return with_later_columns(parquet_files.read_table(file, SCHEMAS[name]))


def part_of(path: Path, round_number: int) -> Path:
    """The folder of one round's rows while the run goes on."""
    return path / "parts" / f"round-{round_number:06d}"


def merged_up_to(path: Path) -> int:
    """Up to which round a table of a finished run is merged; raises `RunError` when it is no such table."""
    try:
        return int((parquet_files.read_schema(path).metadata or {})[MERGED_UP_TO])
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        raise RunError(f"{path}: not a table of a finished run, or damaged ({type(error).__name__})") from None


STOPPED = "stopped"
"""The kind of that event."""


def stopped(path: Path, last_round: int) -> str:
    """Why a run ended after `last_round` (of its checkpoint), in one line; empty for one that goes on.

    Raises `RunError` when that round's events cannot be read.
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
    said = [row["detail"] for row in rows.to_pylist() if row["round"] == last_round and row["kind"] == STOPPED]
    return str(said[0]) if said else ""
