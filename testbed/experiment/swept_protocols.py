"""Sweeps over protocols (``sweep: {aggregation.protocol: [plain, secagg]}``) with different keys.

The section is written once. Each point takes the keys that its protocol has and leaves out the others, with a note. A
key that none of the swept protocols has is an error. Availability models work alike.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.errors import ExperimentError
from testbed.experiment.reading import alternative_keys, named_value
from testbed.spelling import did_you_mean

_NAMED_BY = {"selection": "protocol", "aggregation": "protocol", "availability": "model"}
_DEFAULTS = {"selection": "random", "aggregation": "secagg", "availability": "always"}


@dataclass(frozen=True)
class LeftOut:
    """Keys of a section that a point of a sweep leaves out, because its protocol does not have them.

    Attributes:
        section: e.g. ``aggregation``.
        protocol: the point's protocol or availability model.
        keys: keys of the section.
    """

    section: str
    protocol: str
    keys: tuple[str, ...]

    def __str__(self) -> str:
        keys = ", ".join(f"{self.section}.{key}" for key in self.keys)
        return f"{self.protocol} has no {keys}: left out in its points"


Keys = dict[str, dict[str, Any]]
"""Keys and values by section."""


def with_fitting_protocols(data: Mapping[str, Any], where: str) -> tuple[dict[str, Any], Keys]:
    """Name in each section a protocol that has its keys, and set apart the keys that only other swept protocols have.

    Where the sweep replaces a section's protocol, no point has that protocol, and the section's keys need not fit it.
    The section gets the swept protocol that has most of its keys.

    Args:
        data: the experiment as plain data.
        where: the file or another source; begins the lines of errors.

    Returns:
        the experiment as plain data, and the keys set apart; `with_keys` puts them back.

    Raises:
        ExperimentError: a section has a key that none of the swept protocols has; one line each.
    """
    adjusted, apart = dict(data), {}
    for section, protocols, all_named in _swept(data.get("sweep"), where):
        written = data.get(section)
        # A user-defined class takes any key, so nothing can be checked before it is imported.
        if not isinstance(written, Mapping) or (allowed := _keys_of(section, written, protocols)) is None:
            continue
        named_by = _NAMED_BY[section]
        lines = [
            f"{where}: {section}.{key}: none of the swept protocols has this key; {_allowed(str(key), allowed)}"
            for key in written
            if key != named_by and key not in allowed
        ]
        if lines:
            raise ExperimentError("\n".join(lines))
        if all_named:  # else a point has the protocol of the section, or the default
            most = max(protocols, key=lambda protocol: len(alternative_keys(section, protocol) & written.keys()))
            has = alternative_keys(section, most)
            apart[section] = {key: value for key, value in written.items() if key not in has and key != named_by}
            adjusted[section] = {key: value for key, value in written.items() if key in has} | {named_by: most}
    return adjusted, {section: keys for section, keys in apart.items() if keys}


def with_keys(data: Mapping[str, Any], apart: Keys) -> dict[str, Any]:
    """Return plain data with the keys that were set apart in its sections.

    Args:
        data: the experiment as plain data.
        apart: the keys set apart.
    """
    return {**data, **{section: {**data[section], **keys} for section, keys in apart.items() if section in data}}


def leave_out(
    data: dict[str, Any], base: Mapping[str, Any], sweep: Mapping[str, Sequence[Any]], values: Mapping[str, Any]
) -> list[LeftOut]:
    """Remove from a point's sections the keys that its protocols do not have, and return them.

    Args:
        data: the point as plain data, with the values of its sweep; changed.
        base: the experiment without the sweep.
        sweep: sweep of the experiment.
        values: values of this point by swept key; none of these keys is removed.
    """
    left_out_keys = []
    for section, *_ in _swept(sweep, ""):
        mine, named_by = data.get(section), _NAMED_BY[section]
        if not isinstance(mine, dict):
            continue
        protocol = str(mine.get(named_by, _DEFAULTS[section]))
        has = alternative_keys(section, protocol)
        if not has:  # a user-defined class takes any key
            continue
        swept = {key.partition(".")[2] for key in values if key.startswith(f"{section}.")}
        swept |= set(values[section]) if isinstance(values.get(section), Mapping) else set()
        gone = [key for key in base.get(section) or () if key not in has and key.partition(".")[0] not in swept]
        for key in gone:
            mine.pop(key, None)
        if gone:
            left_out_keys.append(LeftOut(section, protocol, tuple(gone)))
    return left_out_keys


@contextlib.contextmanager
def hinting(base: Mapping[str, Any], sweep: Mapping[str, Sequence[Any]]) -> Iterator[None]:
    """Add to errors about a protocol's keys a hint how to give each swept protocol keys of its own.

    Args:
        base: the experiment without the sweep.
        sweep: sweep of the experiment.
    """
    try:
        yield
    except ExperimentError as error:
        lines = []
        for line in str(error).splitlines():
            for section, named_by in _NAMED_BY.items():
                _, is_of_section, rest = line.partition(f": {section}.")
                key = re.split(r"[.:]", rest, maxsplit=1)[0]
                shared = key in (base.get(section) or ()) or any(of.startswith(f"{section}.{key}") for of in sweep)
                if f"{section}.{named_by}" in sweep and is_of_section and shared:
                    ways = f"[{{{named_by}: NAME, KEY: VALUE}}, {{{named_by}: OTHER}}]"
                    line += f"; to give each {named_by} keys of its own: sweep: {{{section}: {ways}}}"
            lines.append(line)
        raise ExperimentError("\n".join(lines)) from None


def _swept(sweep: Any, where: str) -> Iterator[tuple[str, list[str], bool]]:
    """Yield the sections with swept protocols, the names of the protocols, and whether each value has a name."""
    if not isinstance(sweep, Mapping):
        return
    for section, named_by in _NAMED_BY.items():
        values = sweep.get(f"{section}.{named_by}", sweep.get(section))
        if not isinstance(values, list):
            continue
        plain = [named_value(value, where)[1] for value in values]
        names = [value.get(named_by) if isinstance(value, Mapping) else value for value in plain]
        if texts := [name for name in names if isinstance(name, str)]:
            yield section, texts, len(texts) == len(names)


def _keys_of(section: str, written: Mapping[str, Any], protocols: Sequence[str]) -> set[str] | None:
    """Return the keys of the swept protocols and of the section's own; None if one is a user-defined class."""
    named = written.get(_NAMED_BY[section], _DEFAULTS[section])
    key_sets = [
        alternative_keys(section, protocol) for protocol in (*protocols, *([named] if isinstance(named, str) else []))
    ]
    return None if not all(key_sets) else {key for keys in key_sets for key in keys}


def _allowed(key: str, allowed: set[str]) -> str:
    return f"{did_you_mean(key, sorted(allowed))}allowed: {', '.join(sorted(allowed))}"
