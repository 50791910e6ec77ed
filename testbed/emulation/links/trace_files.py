"""The trace files that links follow, and remarks on them for the user."""

from pathlib import Path

from testbed.emulation.links.section import Followed, FollowedDelay, FollowedShare
from testbed.emulation.traces.series import ROWS_NOTE, Kind, RateSeries, Rows, folders_in, read_series


class TraceFiles:
    """A cache of the trace files that links follow; each file is read once per kind and meaning of its rows."""

    def __init__(self) -> None:
        self._read: dict[tuple[Path, str, Rows], RateSeries] = {}
        self._by_default: set[tuple[Path, str, Rows]] = set()

    def read(self, setting: Followed | FollowedDelay | FollowedShare, kind: Kind) -> RateSeries:
        """Return the traces that a setting names; raise `TraceError` as `read_series` does."""
        key = setting.trace, kind.name, setting.rows
        if key not in self._read:
            self._read[key] = read_series(setting.trace, kind, setting.rows)
        if "rows" not in setting.model_fields_set:
            self._by_default.add(key)
        return self._read[key]

    @property
    def notes(self) -> tuple[str, ...]:
        """One line per file or folder with repeated times, unread folders, or rows of unstated meaning."""
        lines = []
        for key, series in self._read.items():
            path, kind, _ = key
            if series.needs_rows and key in self._by_default:
                lines.append(f"{path}: {ROWS_NOTE.format('`rows: interval-before`, else `rows: until-next`')}")
            if folders := folders_in(path):
                lines.append(
                    f"{path}: files in its folders are not read, e.g. in {folders[0]}; name a folder, or move files"
                )
            rows, files = int(series.repeated.sum()), int((series.repeated > 0).sum())
            if rows:
                where = f"{files} of its {len(series)} files" if len(series) > 1 else "it"
                times = f"{rows} {'row has' if rows == 1 else 'rows have'} the time of the row before"
                lines.append(f"{path}: {times}, in {where}; the mean {kind} of a time is taken")
        return tuple(dict.fromkeys(lines))
