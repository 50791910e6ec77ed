"""Duration of a reproduction: the sum of all attempts, unchanged by a repetition of a finished one."""

from pathlib import Path

import pytest

from analysis.reproduction import elapsed as module
from analysis.reproduction.elapsed import FILE, elapsed


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """In place of the module's."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_attempts_add_up_and_a_repetition_does_not(clock: Clock, tmp_path: Path) -> None:
    def stopped() -> None:
        with elapsed(tmp_path):
            clock.now += 50
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    with elapsed(tmp_path) as seconds:
        clock.now += 20
        assert seconds() == 70
    assert seconds() == 70
    with elapsed(tmp_path) as seconds:
        clock.now += 3
        assert seconds() == 70


@pytest.mark.parametrize("text", ["", "[]", '{"seconds": "x"}'])
def test_an_unreadable_file_is_no_attempt(clock: Clock, tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with elapsed(tmp_path) as seconds:
        clock.now += 4
    assert seconds() == 4
