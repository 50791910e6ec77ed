"""Differences between the experiments of the runs, and settings that all runs share."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from analysis.report.sheets import Cell, Sheet, words
from testbed.experiment.written import written_in as written_in
from testbed.flattening import flattened
from testbed.records import RunRecords

MAIN_COLUMNS = 8
"""Number of differing keys shown at first; the others are shown on demand."""

_ASIDE = ("provenance", "output", "cluster", "sweep", "name")
_LONGEST_NAMED = 6  # keys in the note on keys that follow


def value_text(value: Any) -> str:
    """Return a value of an experiment as written in YAML, on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {value_text(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(value_text, value)) + "]"
    if isinstance(value, float):
        return f"{value:.12g}"
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def settings(runs: Sequence[RunRecords]) -> tuple[Sheet, Sheet]:
    """Return the differences of the runs' experiments, a row per run, and their common settings, a row per key.

    A differing key is listed in the first table if an experiment file sets it, or if the runs are of different versions
    of the testbed, which may have different defaults. The other differing keys follow from these: they are defaults of
    another protocol, for example.
    """
    flat = [_settings_of(run) for run in runs]
    keys = list(dict.fromkeys(key for flat_experiment in flat for key in flat_experiment))
    values = {
        key: [value_text(flat_experiment[key]) if key in flat_experiment else None for flat_experiment in flat]
        for key in keys
    }
    written = [written_in(run.experiment) for run in runs]
    differing = [key for key in keys if len(set(values[key])) > 1]
    versions = {_version(run) for run in runs}
    listed = [key for key in differing if _is_listed(key, flat, written, len(versions) > 1)]
    swept = {key for run in runs for key in run.value("provenance.sweep", {})}
    listed.sort(key=lambda key: not _is_among(key, swept))
    rows = [
        [words(run.label), *(_cell(flat_experiment, key) for key in listed)]
        for run, flat_experiment in zip(runs, flat, strict=True)
    ]
    more = tuple(range(1 + MAIN_COLUMNS, 1 + len(listed)))
    notes = [] if len(runs) == 1 else _notes([key for key in differing if key not in listed])
    differences = Sheet("Settings that differ between runs", ["Run", *listed], rows, (), notes, more)
    return differences, _common(values, differing, written)


def _settings_of(run: RunRecords) -> dict[str, Any]:
    """Return the experiment by dotted keys, with the noise multiplier that was computed for an epsilon."""
    plain = {key: part for key, part in run.experiment.items() if key not in _ASIDE}
    values = dict(flattened(plain, keep_empty=True))
    multiplier = run.value("provenance.noise_multiplier")
    return values if multiplier is None else values | {"noise multiplier": multiplier}


def _is_listed(
    key: str, flat: Sequence[Mapping[str, Any]], written: Sequence[list[str] | None], other_versions: bool
) -> bool:
    if other_versions and all(key in flat_experiment for flat_experiment in flat):
        return True
    return any(
        key in flat_experiment and (keys is None or key == "seed" or _is_among(key, keys))
        for flat_experiment, keys in zip(flat, written, strict=True)
    )


def _is_among(key: str, keys: Collection[str]) -> bool:
    """Return whether a dotted key is one of some keys, or within one of them."""
    return any(key == other or key.startswith(f"{other}.") for other in keys)


def _version(run: RunRecords) -> str:
    origin = run.experiment.get("provenance") or {}
    return f"{(origin.get('versions') or {}).get('testbed')} {origin.get('git_commit')}"


def _notes(following: Sequence[str]) -> list[str]:
    """Return a note on the keys that differ only as a consequence of others."""
    if not following:
        return []
    named = ", ".join(following[:_LONGEST_NAMED])
    more = f" and {len(following) - _LONGEST_NAMED} more" if len(following) > _LONGEST_NAMED else ""
    return [f"These keys are not set; their defaults depend on the keys above: {named}{more}."]


def _common(
    values: Mapping[str, Sequence[str | None]], differing: Sequence[str], written: Sequence[list[str] | None]
) -> Sheet:
    """Return the keys with equal values in all runs; keys set in an experiment come first."""
    written_keys = [keys for keys in written if keys is not None]
    rows = []
    for key in values:
        if key not in differing:
            is_set = any(_is_among(key, keys) for keys in written_keys)
            rows.append([words(key), words(values[key][0]), words("experiment" if is_set else "default")])
    rows.sort(key=lambda row: row[2][0] != "experiment")
    if not written_keys:
        rows = [row[:2] for row in rows]
    return Sheet("Settings common to all runs", ["Key", "Value", "Set by"][: len(rows[0]) if rows else 3], rows)


def _cell(values: Mapping[str, Any], key: str) -> Cell:
    value = values.get(key)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return (value_text(value), value) if is_number else words(value_text(value) if key in values else None)
