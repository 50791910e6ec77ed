"""Speed factors from tables of measured devices: latencies (smaller is faster) or scores (larger is faster).

What is known of the published tables that the loaders are made for:

- AI-Benchmark scores of 333 phones (``raw_ai_benchmark_list.json`` of FLASH; Ignatov et al., AI Benchmark: All About
  Deep Learning on Smartphones in 2019, arXiv 1910.06663): every ``..._Score`` is a speed, larger is faster;
  ``CPU_F_AI_Score`` is floating-point inference on the CPU, ``AI_Score`` the sum with accelerators, by which FLASH
  finds the nearest phone whose training was timed (there with a footnote's number behind the score).
- Training latencies of 997 phones and models in ms, columns ``ResNet Latency`` and ``Vit Latency`` (of 21 phones).
  A 0 stands for a phone that has no result; these are left out.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from testbed.arrays import Floats
from testbed.emulation.traces.columns import read_columns
from testbed.errors import TraceError

_FASTER = re.compile(r"score|speed|throughput|flops|fps|per[_ ]s|/s", re.IGNORECASE)
_SLOWER = re.compile(r"latency|duration|time|seconds|delay|(?:^|[^a-z/])(?:s|ms|us|ns)(?:$|[^a-z])", re.IGNORECASE)


@dataclass(frozen=True)
class DeviceTable:
    """The devices of a table.

    Attributes:
        factors: `(m,)` float64: how many times longer than the fastest of the table each device computes; at least 1.
        left_out: number of devices without a value in the column, or with 0 there.
    """

    factors: Floats
    left_out: int


def read_device_table(path: Path, column: str, larger_is_faster: bool | Literal["auto"] = "auto") -> DeviceTable:
    """The speed factors in a column of a table of devices.

    Args:
        path: CSV, Parquet or JSON with a device per row (see `testbed.emulation.traces.columns`).
        column: its latencies or scores.
        larger_is_faster: True for scores, False for latencies; "auto": by the column's name.

    Raises:
        TraceError: one line with file and row: the file or the column cannot be used, a value is negative, all are 0,
            or the name of the column does not say which way it goes.
    """
    found = read_columns(path, [column])
    values = found.values[0]
    if (values < 0).any():
        at = int(np.argmax(values < 0))
        raise TraceError(f"{path}: row {found.rows[at]}: {column} is {values[at]:g}; no latency or score is negative")
    measured = values[values > 0]
    if not len(measured):
        raise TraceError(f"{path}: {column} is 0 in every row; choose a column of latencies or scores")
    scores = _are_scores(path, column) if larger_is_faster == "auto" else larger_is_faster
    with np.errstate(over="ignore"):
        factors = measured.max() / measured if scores else measured / measured.min()
    if not np.isfinite(factors).all():
        raise TraceError(f"{path}: {column}: values from {measured.min():g} to {measured.max():g} are too far apart")
    return DeviceTable(factors, found.left_out + len(values) - len(measured))


def _are_scores(path: Path, column: str) -> bool:
    faster, slower = _FASTER.search(column), _SLOWER.search(column)
    if (faster is None) == (slower is None):
        raise TraceError(
            f"{path}: {column!r} does not say whether a larger value is a faster device; "
            "set devices.larger_is_faster to true or false"
        )
    return faster is not None
