"""`classes` in experiment files: overrides, sweeps, one line a mistake, the files that they name."""

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.experiment.inputs import digests, located, missing, plugin_classes
from testbed.experiment.schema import points

TEXT = """
population: 40
selection: {participants: 5}
links: {transport: tcp}
classes:
  phone-4g: {share: 0.5, up_mbit_s: {distribution: log-normal, median: 5, sigma: 0.5}, loss: 0.01, device: 3}
  fibre: {share: 0.5, device: {model: zipf}}
"""


def test_overrides(load_text: Callable) -> None:
    classes = load_text(
        TEXT,
        "classes.fibre.share=0.2",
        "classes.phone-4g.share=0.3",
        "classes.phone-4g.up_mbit_s.median=7",
        "classes.fibre.device.slowest=4",
        "classes.more.latency_ms=9",
    ).classes
    assert {name: kind.share for name, kind in classes.items()} == {"fibre": 0.2, "phone-4g": 0.3, "more": None}
    assert classes["phone-4g"].up_mbit_s.median == 7
    assert (classes["fibre"].device.model, classes["fibre"].device.slowest) == ("zipf", 4)
    assert load_text(TEXT, "classes={}").classes == {}
    assert load_text(TEXT, "classes.fibre.device=2").classes["fibre"].devices.factor == 2


def test_a_sweep_over_shares(load_text: Callable) -> None:
    text = TEXT.replace("fibre: {share: 0.5, ", "fibre: {") + "sweep: {classes.phone-4g.share: [0, 0.25, 1]}\n"
    found = list(points(load_text(text), "here"))
    assert [point.label for point in found] == ["share=0", "share=0.25", "share=1"]
    assert [point.experiment.classes["phone-4g"].share for point in found] == [0, 0.25, 1]


@pytest.mark.parametrize(
    ("override", "says"),
    [
        (
            "classes.fibre.share=0.4",
            "classes.phone-4g.share: the shares of the classes sum to 0.9, and must sum to 1; ",
        ),
        ("classes.fibre.share=1.2", "classes.fibre.share: should be less than or equal to 1, not 1.2"),
        ("classes.fibre.upmbit_s=3", "classes.fibre.upmbit_s: unknown key; did you mean 'up_mbit_s'? allowed: buffer"),
        ("classes.fibre.device.modle=3", "classes.fibre.device.modle: unknown key; did you mean 'model'? allowed: co"),
        ("classes.phone-4g.up_mbit_s.sigm=3", "classes.phone-4g.up_mbit_s.sigm: unknown key; did you mean 'sigma'?"),
        ("classes.fibre.up_mbit_s=-1", "classes.fibre.up_mbit_s: should be greater than 0, not -1"),
        ("classes.fibre.device=fast", "classes.fibre.device: should be a valid number, not 'fast'"),
        (
            "classes.fibre.transport=tls",
            "classes.fibre.transport: unknown key; allowed: buffer_ms, device, down_mbit_s",
        ),
        ("classes.fibre=3", "classes.fibre: should be a mapping of keys to values, not 3"),
        (
            "links.model=a:B",
            "classes.phone-4g.up_mbit_s: links.model, a user-defined class",
        ),
        ("links.transport=none", "classes.phone-4g: `loss` needs a transport"),
        ("population=1", "selection."),
    ],
)
def test_mistakes(override: str, says: str, mistake: Callable) -> None:
    assert mistake(TEXT, override).startswith(says)


def test_files_and_classes_of_ones_own(load_text: Callable, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("down\n1\n")
    experiment = load_text(
        TEXT,
        f"classes.fibre.down_mbit_s={{table: {tmp_path}/t.csv, column: down}}",
        "classes.phone-4g.device={model: table, path: nowhere.csv, column: Latency}",
        "classes.fibre.device={model: 'phones:Own'}",
    )
    assert list(digests(experiment)) == [str(tmp_path / "t.csv")]
    (line,) = missing(experiment)
    assert line.startswith("classes.phone-4g.device.path: nowhere.csv: no such file")
    assert plugin_classes(experiment) == [("classes.fibre.device.model", "phones:Own")]
    assert located(experiment).classes["phone-4g"].device.path == Path.cwd() / "nowhere.csv"
