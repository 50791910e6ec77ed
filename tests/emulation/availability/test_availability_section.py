"""The `availability` section: alternatives, mistakes, files, and a user-defined class."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from testbed.emulation.availability import (
    Always,
    AvailabilitySection,
    Bernoulli,
    DiurnalWeibull,
    Dropout,
    LabelDependent,
    Markov,
    Scheduled,
    Traced,
    UserDefinedAvailability,
)
from testbed.emulation.traces.intervals import AvailabilityTrace
from testbed.emulation.traces.schedule import Schedule
from testbed.errors import ExperimentError, TraceError
from testbed.experiment.schema import validated
from tests.emulation.availability.models import model_of
from tests.messages_named import naming

SECTION = TypeAdapter(AvailabilitySection)
MEANS = {"mean_online_s": 60, "mean_offline_s": 90}
MARKOV = {"model": "markov", **MEANS}
DIURNAL = {"model": "diurnal-weibull", **MEANS, "amplitude": 0.5}


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        ({}, Always),
        ({"model": "always"}, Always),
        ({"dropout": {"rate": 0.1, "stage": "train", "hazard": {"train": 0.5}}}, Always),
        ({"model": "bernoulli"}, Bernoulli),
        ({"model": "bernoulli", "unavailable": [0.1, 0.5]}, Bernoulli),
        ({"model": "label-dependent", "lowest": 0, "highest": 1}, LabelDependent),
        (MARKOV, Markov),
        (DIURNAL, DiurnalWeibull),
        ({"model": "trace", "path": "phones.parquet", "shift": True, "repeat": False, "start_s": 5}, Traced),
        ({"model": "schedule", "path": "what-happened.csv"}, Scheduled),
        ({"model": "theirs.module:Model", "options": {"anything": [1, "two"]}}, UserDefinedAvailability),
    ],
)
def test_each_model_has_keys_of_its_own_and_survives_being_written_out(keys: dict[str, Any], kind: type) -> None:
    section = validated({"availability": keys}, "here").availability
    assert type(section) is kind
    for key, value in keys.items():
        if key not in ("dropout", "path"):
            assert getattr(section, key) == value
    again = validated({"availability": section.model_dump(mode="json")}, "here").availability
    assert again == section


@pytest.mark.parametrize("model", [{}, {"model": "always"}])
def test_experiments_written_out_by_earlier_versions_load(model: dict[str, Any]) -> None:
    """They say for every model that nobody is unavailable, and know no hazard."""
    earlier = {**model, "unavailable": 0.0, "dropout": {"rate": [0.0, 0.2], "stage": "random"}}
    section = validated({"availability": earlier}, "here").availability
    assert section == Always(dropout=Dropout(rate=[0.0, 0.2]))


@pytest.mark.parametrize(
    "keys",
    [
        {"unavailable": 0.5},
        {"unavailable": [0.0]},
        {"unavailable": False},
        {"model": "sometimes"},
        {"model": None},
        {"model": "bernoulli", "unavailable": -0.1},
        {"model": "bernoulli", "unavailable": 1.1},
        {"model": "bernoulli", "unavailable": float("nan")},
        {"model": "bernoulli", "unavailable": []},
        {"model": "bernoulli", "unavailable": [0.5, 2]},
        {"model": "bernoulli", "mean_online_s": 5},
        {"model": "label-dependent", "lowest": -0.1},
        {"model": "label-dependent", "highest": 1.1},
        {"model": "markov", "mean_online_s": 5},
        MARKOV | {"mean_online_s": 0},
        MARKOV | {"mean_offline_s": -1},
        MARKOV | {"mean_offline_s": float("inf")},
        MARKOV | {"mean_offline_s": [1, 2]},
        MARKOV | {"amplitude": 0.5},
        {"model": "diurnal-weibull", **MEANS},
        DIURNAL | {"amplitude": 1},
        DIURNAL | {"amplitude": -0.1},
        DIURNAL | {"online_shape": 0.01},
        DIURNAL | {"offline_shape": 11},
        DIURNAL | {"peak_hour": 25},
        DIURNAL | {"spread_hours": -1},
        DIURNAL | {"day_s": 0},
        {"model": "trace"},
        {"model": "trace", "path": 5},
        {"model": "trace", "path": "x.csv", "start_s": -1},
        {"model": "trace", "path": "x.csv", "shift": "often"},
        {"model": "schedule"},
        {"model": "schedule", "path": "x.csv", "repeat": True},
        {"model": "no class:at all"},
        {"model": "theirs:Model", "further": 1},
        {"dropout": {"rate": float("nan")}},
        {"dropout": {"rate": [0.1, -1]}},
        {"dropout": {"rate": []}},
        {"dropout": {"hazard": 1.5}},
        {"dropout": {"hazard": [0.1, 0.2]}},
        {"dropout": {"hazard": {"train": -1}}},
        {"dropout": {"hazard": "often"}},
        {"dropout": {"stage": 5}},
    ],
)
def test_sections_that_mean_nothing_are_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as refused:
        SECTION.validate_python(keys)
    assert refused.value.error_count() == 1


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"model": "markvo"}, "availability.model: unknown model 'markvo'; did you mean 'markov'? allowed: 'always', "),
        ({"model": "markov", "mean_online_s": 5}, "availability.mean_offline_s: is required"),
        (MARKOV | {"mean_online_s": 0}, "availability.mean_online_s: should be greater than or equal to 0.01, not 0"),
        (
            MARKOV | {"unavailable": 0.1},
            "availability.unavailable: unknown key; it is a key of bernoulli, and not of markov; ",
        ),
        ({"unavailable": 0.1}, "availability: `unavailable` has an effect only with `model: bernoulli`"),
        ({"dropout": {"hazard": {"train": 2}}}, "availability.dropout.hazard.train: should be less than or equal to 1"),
        ({"dropout": {"hazard": [0.5]}}, "availability.dropout.hazard: should be a valid number"),
        ({"model": "theirs:Model", "size": 1}, "availability.size: unknown key; allowed: dropout, model, options"),
        ({"model": "the irs:Model"}, "availability.model: should be package.module:Class"),
        (5, "availability: should be a mapping of keys to values, not 5"),
    ],
)
def test_mistakes_are_named_in_one_line(keys: Any, line: str) -> None:
    with pytest.raises(ExperimentError) as refused:
        validated({"availability": keys}, "here")
    assert str(refused.value).startswith(f"here: {line}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"model": "bernoulli", "unavailable": [0.1] * 4}, "unavailable"),
        ({"dropout": {"rate": [0.1] * 4}}, "dropout.rate"),
    ],
)
def test_a_list_is_no_longer_than_the_population(keys: dict[str, Any], key: str) -> None:
    model_of(4, **keys)
    with pytest.raises(
        ExperimentError, match=rf"^availability\.{key}: a list of 4 values for a population of 3; at most 3$"
    ):
        model_of(3, **keys)


# -- files ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Three devices in 100 s: 0 is online in the first half, 1 in the second, 7 always."""
    path = tmp_path / "devices.parquet"
    AvailabilityTrace.from_rows([0, 1, 7], [0.0, 50.0, 0.0], [50.0, 100.0, 100.0]).write(path)
    return path


def test_clients_follow_the_devices_of_a_trace(trace: Path) -> None:
    model = model_of(3, model="trace", path=str(trace))
    assert model.comes_back
    first, second, again = (model.presence(1, "train", at_s, np.arange(3)) for at_s in (10.0, 60.0, 110.0))
    assert (first.reachable != second.reachable).sum() == 2
    assert (again.reachable == first.reachable).all()
    assert sorted(first.leaves_s[first.reachable].tolist()) == [50.0, np.inf]
    later = model_of(3, model="trace", path=str(trace), start_s=50.0).presence(1, "train", 10.0, np.arange(3))
    assert (later.reachable == second.reachable).all()
    over = model_of(3, model="trace", path=str(trace), repeat=False).presence(1, "train", 110.0, np.arange(3))
    assert not over.reachable.any()
    ends = [model_of(9, model="trace", path=str(trace), shift=True, seed=seed) for seed in (1, 1, 2)]
    leaves = [np.nan_to_num(m.presence(1, "train", 0.0, np.arange(9)).leaves_s).tolist() for m in ends]
    assert leaves[0] == leaves[1] != leaves[2]
    assert len(set(leaves[0])) > 3


def test_drop_outs_come_on_top_of_a_trace(trace: Path) -> None:
    model = model_of(3, model="trace", path=str(trace), dropout={"hazard": {"train": 1.0}})
    presence = model.presence(1, "train", 10.0, np.arange(3))
    assert presence.reachable.sum() == 2
    assert (presence.drops == presence.reachable).all()
    assert not model.presence(1, "first", 20.0, np.arange(3)).drops.any()
    assert model.presence(2, "check-in", 20.0, np.arange(3)).reachable.sum() == 2


def test_a_schedule_happens_again(tmp_path: Path) -> None:
    path = tmp_path / "schedule.csv"
    rows = [(1, 0, "", "offline"), (1, 2, "", "participant"), (1, 2, "first", "dropped")]
    Schedule.from_rows(rows).write(path)
    model = model_of(3, model="schedule", path=str(path))
    assert not model.comes_back
    assert model.presence(1, "check-in", 0.0, np.arange(3)).reachable.tolist() == [False, True, True]
    assert model.presence(1, "first", 0.0, np.arange(3)).drops.tolist() == [False, False, True]
    assert model.presence(2, "first", 0.0, np.arange(3)).reachable.all()
    with pytest.raises(ValueError, match=naming("schedule", "dropout")):
        model_of(3, model="schedule", path=str(path), dropout={"rate": 0.1})
    with pytest.raises(TraceError):
        model_of(2, model="schedule", path=str(path))


@pytest.mark.parametrize("model", ["trace", "schedule"])
def test_files_that_cannot_be_used(tmp_path: Path, model: str) -> None:
    (tmp_path / "garbage.parquet").write_bytes(bytes(range(256)))
    (tmp_path / "columns.csv").write_text("a,b\n1,2\n")
    for name in ("absent.csv", "garbage.parquet", "columns.csv", "."):
        with pytest.raises(TraceError) as refused:
            model_of(3, model=model, path=str(tmp_path / name))
        assert "\n" not in str(refused.value)


def test_a_run_begins_within_the_trace(trace: Path) -> None:
    with pytest.raises(ExperimentError, match=naming("availability.start_s", "devices.parquet", 100)):
        model_of(3, model="trace", path=str(trace), start_s=100)


# -- a user-defined class -------------------------------------------------------------------------------------------

OWN = """
import numpy as np
from testbed.emulation.availability import Presence

class Even:
    comes_back = True

    def __init__(self, section, population, randomness, every):
        self.there = np.arange(population) % every == 0
        assert randomness.seed == 1

    def presence(self, round_number, stage, now_s, clients):
        return Presence(self.there[clients], np.ones(len(clients), bool), np.full(len(clients), now_s + 5))

class Answers(Even):
    def presence(self, round_number, stage, now_s, clients):
        m = len(clients)
        answers = {
            "nothing": None,
            "short": Presence.of(np.ones(1, bool)),
            "numbers": Presence(np.ones(m), np.ones(m, bool), np.ones(m)),
            "whole": Presence(np.ones(m, bool), np.ones(m, bool), np.ones(m, int)),
            "list": Presence(np.ones(m, bool), [True] * m, np.ones(m)),
            "nan": Presence(np.ones(m, bool), np.ones(m, bool), np.full(m, np.nan)),
        }
        return answers[stage]

class Mute:
    comes_back = False

    def __init__(self, section, population, randomness):
        pass

class Undecided(Even):
    comes_back = "perhaps"

class Broken:
    def __init__(self, section, population, randomness):
        raise RuntimeError("theirs")
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module with user-defined models."""
    (tmp_path / "own_availability_models.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    return "own_availability_models"


def test_a_user_defined_class_decides_presence(own: str) -> None:
    model = model_of(7, model=f"{own}:Even", options={"every": 3})
    assert model.comes_back
    presence = model.presence(1, "train", 10.0, np.arange(7))
    assert presence.reachable.tolist() == [True, False, False, True, False, False, True]
    assert (presence.drops == presence.reachable).all()  # only reachable clients drop out
    assert (presence.leaves_s == 15).all()
    dropping = model_of(7, model=f"{own}:Even", options={"every": 1}, dropout={"hazard": {"train": 1.0}})
    assert dropping.presence(1, "train", 10.0, np.arange(7)).drops.all()


@pytest.mark.parametrize(
    ("stage", "says"),
    [
        ("nothing", "presence() must return a Presence, not NoneType"),
        ("short", "presence().reachable must be bool of shape (4,), not bool (1,)"),
        ("numbers", "presence().reachable must be bool of shape (4,), not float64 (4,)"),
        ("whole", "presence().leaves_s must be float64 of shape (4,), not int64 (4,)"),
        ("list", "presence().drops must be bool of shape (4,), not list"),
        ("nan", "presence().leaves_s has NaN"),
    ],
)
def test_answers_of_the_wrong_kind_are_refused(own: str, stage: str, says: str) -> None:
    model = model_of(7, model=f"{own}:Answers", options={"every": 1})
    with pytest.raises(ExperimentError) as refused:
        model.presence(1, stage, 0.0, np.arange(4))
    assert str(refused.value).startswith(f"availability.model: {own}:Answers: {says}")


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("Mute", {}, "lacks the method presence"),
        ("Undecided", {"every": 1}, "needs an attribute `comes_back`"),
        ("Absent", {}, "has no class Absent"),
    ],
)
def test_classes_that_are_no_models(own: str, name: str, options: dict, says: str) -> None:
    with pytest.raises(ExperimentError, match=rf"^availability\.model: {own}:{name}: .*{says}"):
        model_of(7, model=f"{own}:{name}", options=options)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("Even", {"evry": 3}, "availability.options.evry: unknown option; did you mean 'every'? allowed: every"),
        ("Mute", {"every": 3}, "availability.options.every: unknown option; allowed: none; {own}:Mute declares no"),
        ("Even", {}, "availability: {own}:Even(..., ..., ...): missing a required argument: 'every'"),
    ],
)
def test_options_that_the_class_does_not_declare_are_refused(own: str, name: str, options: dict, says: str) -> None:
    with pytest.raises(ExperimentError) as refused:
        model_of(7, model=f"{own}:{name}", options=options)
    assert str(refused.value).startswith(says.format(own=own))
    assert "\n" not in str(refused.value)


def test_errors_of_a_user_defined_class_pass_through(own: str) -> None:
    with pytest.raises(RuntimeError, match="theirs"):
        model_of(7, model=f"{own}:Broken")
    with pytest.raises(ExperimentError, match=r"availability\.model: no_such_module:Model: no module"):
        model_of(7, model="no_such_module:Model")
