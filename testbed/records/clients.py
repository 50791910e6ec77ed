"""The `clients` table with the properties of each client of a run, in a file written when the run begins.

10^6 clients take 0.5 s and at most 30 MB on disk (if all rates, latencies and factors differ); `records.clients: false`
leaves the table out.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from testbed.files import parquet as parquet_files
from testbed.records.tables import damaged

CLIENTS = "clients"
FILE = f"{CLIENTS}.parquet"
NEARLY_ALL = 0.9
"""Share of clients with a single gradient step per round from which users are warned."""

SCHEMA = pa.schema(
    [
        ("client", pa.int64()),
        ("class", pa.dictionary(pa.int16(), pa.string())),  # empty if the experiment has no classes
        ("down_mbit_s", pa.float64()),  # mean over a period if the client has a trace or outages
        ("up_mbit_s", pa.float64()),
        ("latency_ms", pa.float64()),  # one way
        ("loss", pa.float64()),
        ("device_factor", pa.float64()),
        ("samples", pa.int64()),
    ]
)


def clients_table(names: tuple[str, ...], class_of: npt.NDArray[np.int16], columns: Mapping[str, Any]) -> pa.Table:
    """Return the table, one row per client of a population of n.

    Args:
        names: of the classes.
        class_of: `(n,)` each client's class by its index in `names`.
        columns: `(n,)` each, the other columns except ``client``.
    """
    named = pa.DictionaryArray.from_arrays(pa.array(class_of), pa.array(names, pa.string()))
    arrays = {"client": np.arange(len(class_of)), "class": named, **columns}
    return pa.table([arrays[name] for name in SCHEMA.names], schema=SCHEMA)


def read_clients(path: Path) -> pa.Table:
    """Return the table of the run in the directory `path`; empty if there is none.

    Raises:
        RunError: the table is damaged.
    """
    try:
        return parquet_files.read_table(path / FILE, SCHEMA)
    except FileNotFoundError:
        return SCHEMA.empty_table()
    except (OSError, pa.ArrowException) as error:
        raise damaged(path, CLIENTS, error) from None


def take_single_steps(samples: npt.NDArray[np.int64], epochs: int, batch_size: int) -> bool:
    """Return whether at least 90 % of the clients with samples take one gradient step per round.

    Args:
        samples: `(n,)` training samples of each client.
        epochs: local passes over them (E).
        batch_size: samples of a step (B).
    """
    holding = samples[samples > 0]
    return epochs == 1 and len(holding) > 0 and float((holding <= batch_size).mean()) >= NEARLY_ALL
