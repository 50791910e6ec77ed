"""The way of a round to a client's training is short enough to be read."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.engine.federations import Pulling
from tests.repository import ROOT


def test_few_functions_lie_between_a_round_and_a_clients_training(run: Callable[..., Any]) -> None:
    ways: list[list[tuple[str, str]]] = []

    class Traced(Pulling):
        def train(self, client: int, model: Any, round_number: int) -> Any:
            frame, way = sys._getframe(1), []
            while frame.f_code.co_name != "run_next_round":
                way.append((str(Path(frame.f_code.co_filename).relative_to(ROOT)), frame.f_code.co_name))
                assert frame.f_back is not None
                frame = frame.f_back
            ways.append(way)
            return super().train(client, model, round_number)

    run({}, workload=Traced).rounds(1)
    assert ways
    assert max(map(len, ways)) <= 17
    assert len({file for way in ways for file, _ in way}) <= 8
