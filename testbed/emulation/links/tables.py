"""Rates and delays of measured devices, read from tables and matrices."""

from collections.abc import Callable

import numpy as np

from testbed.arrays import Floats, Ids
from testbed.emulation.links.section import LEAST_SHARE, MatrixColumn, Tabled, share_between, truncated_normal
from testbed.errors import TraceError

FLASH_COLUMNS = ("down_u", "down_sigma", "up_u", "up_sigma")
_MBIT_PER_KB = 8e-3


def table_rates(
    setting: Tabled, assigned: Callable[[int], Ids], generator: Callable[[], np.random.Generator]
) -> Floats:
    """Return each client's rate from a table of devices, before `scale`.

    FLASH's table of network speeds (``speed_distri.json`` of its code) has the mean and the standard deviation of the
    speed of each of 19 phones, down and up, in kB/s. FLASH divides the bytes of a model by 1000 (uploads; downloads: by
    1024) and by a normal random number, which is drawn again while it is negative. FLASH draws for every transfer; here
    a client's rate is drawn once, and 1 kB is 1000 bytes.

    Args:
        setting: the table and column.
        assigned: returns the `(n,)` row indices of the clients, given the number of rows.
        generator: returns the random stream, for tables that hold distributions.

    Returns:
        `(n,)` float64 Mbit/s, positive.

    Raises:
        TraceError: the file cannot be used; one line with file and row.

    Source:
        Yang et al., Characterizing Impacts of Heterogeneity in Federated Learning upon Large-Scale Smartphone Data, WWW
        2021.
    """
    from testbed.emulation.traces.columns import column_names, read_columns

    path, column = setting.table, setting.column
    if set(FLASH_COLUMNS) <= set(column_names(path)):
        return _flash_rates(setting, assigned, generator)
    table = read_columns(path, [column])
    rates = table.values[0]
    if not (rates > 0).all():
        first_bad = int(np.argmin(rates > 0))
        raise TraceError(
            f"{path}: row {table.rows[first_bad]}: {column} is {rates[first_bad]:g} Mbit/s; a rate must be positive"
        )
    chosen: Floats = rates[assigned(len(rates))]
    return chosen


def _flash_rates(
    setting: Tabled, assigned: Callable[[int], Ids], generator: Callable[[], np.random.Generator]
) -> Floats:
    from testbed.emulation.traces.columns import read_columns

    if setting.column not in ("down", "up"):
        raise TraceError(f"{setting.table}: no column {setting.column!r} in FLASH's table; there are down, up")
    table = read_columns(setting.table, FLASH_COLUMNS)  # all four, so that a row is the same device both ways
    first = 0 if setting.column == "down" else 2
    mean, sigma = table.values[first : first + 2] * _MBIT_PER_KB
    # Negated, so that NaN is rejected, too.
    rejected = ~(sigma >= 0) | (share_between(mean, sigma, setting.minimum, np.inf) < LEAST_SHARE)
    if rejected.any():
        first_bad = int(np.argmax(rejected))
        raise TraceError(
            f"{setting.table}: row {table.rows[first_bad]}: normal with mean {mean[first_bad]:g} and sigma "
            f"{sigma[first_bad]:g} Mbit/s is hardly ever above {setting.minimum:g}; correct it, or set a smaller "
            "`minimum`"
        )
    row = assigned(len(mean))
    return truncated_normal(mean[row], sigma[row], setting.minimum, np.inf, generator())


def matrix_delays(setting: MatrixColumn) -> Floats:
    """Return the server's column of a latency matrix, `(rows,)` float64 ms; raise `TraceError` if it cannot be read."""
    from testbed.emulation.traces.latency import read_latency_matrix

    values, _, names = read_latency_matrix(setting.matrix)
    column = setting.column
    if isinstance(column, str):
        if column not in names:
            listed = ", ".join(map(repr, names[:20])) + (", …" if len(names) > 20 else "")
            raise TraceError(f"{setting.matrix}: no column {column!r}; there are {listed}")
        return values[:, names.index(column)]
    if column >= values.shape[1]:
        raise TraceError(f"{setting.matrix}: no column {column}; there are {values.shape[1]}, counted from 0")
    return values[:, column]
