"""``tensorboard``: scalars per round, against rounds and against the run's clock, in TensorBoard's event files."""

import time
from pathlib import Path
from typing import Any

from testbed.running.observers.export import Exporter, Row, numbers, place_of
from testbed.running.preparation import PlannedRun

_BY_TIME = ("accuracy", "loss")
_LAST = "round/completed"


class TensorBoardEvents(Exporter):
    """Writes to ``tensorboard/`` in the run's directory: ``tensorboard --logdir runs`` shows all runs below.

    A round is one event with all of its scalars, ``round/...``, at the step of its number. Accuracy and loss come again
    as ``clock/...``, at the step of the milliseconds of the run's clock.

    Args:
        directory: where the folders go instead, one a run.
    """

    needs = ("tensorboard",)

    def __init__(self, directory: str | None = None) -> None:
        super().__init__()
        self._directory = directory
        self._writers: dict[Path, Any] = {}

    def opened(self, run: PlannedRun) -> int:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        place = place_of(run, self._directory, "tensorboard")
        last = _last_round(place)
        self._writers[run.path] = EventFileWriter(str(place))
        return last

    def write(self, run: PlannedRun, row: Row) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        columns, now = numbers(row), time.time()
        by_clock = {f"clock/{name}": columns[name] for name in _BY_TIME if name in columns}
        of_round = {f"round/{name}": value for name, value in columns.items()}
        writer = self._writers[run.path]
        for step, scalars in ((round(row["time_s"] * 1000), by_clock), (row["round"], of_round)):  # _LAST is last
            values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
            if values:
                writer.add_event(Event(wall_time=now, step=step, summary=Summary(value=values)))
        writer.flush()

    def closed(self, run: PlannedRun, summary: Any) -> None:
        self._writers.pop(run.path).close()


def _last_round(place: Path) -> int:
    """Return the last round in the event files; incomplete data of a killed process are not read."""
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event

    last = 0
    for file in sorted(place.glob("*.tfevents.*")):
        for data in RawEventFileLoader(str(file)).Load():
            event = Event.FromString(data)
            if any(value.tag == _LAST for value in event.summary.value):
                last = max(last, event.step)
    return last
