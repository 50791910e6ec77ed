"""Classes of clients: their sizes, members, and independence of links and devices from other classes."""

import sys
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.emulation.client_classes import ClassMembers, ClientClass, check_classes, class_counts, draw_members
from testbed.emulation.devices import Devices
from testbed.emulation.links import BYTES_PER_MBIT, ClientLinks, Links
from testbed.engine.plan import RunPlan
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment
from tests.messages_named import naming
from tests.thoroughness import examples

RATE = {"distribution": "log-normal", "median": 5, "sigma": 0.5}
DELAY = {"distribution": "uniform", "minimum": 5, "maximum": 90}
LOSS = {"distribution": "uniform", "minimum": 0, "maximum": 0.1}


def classes_of(keys: Mapping[str, Any]) -> dict[str, ClientClass]:
    return {name: ClientClass.model_validate(given) for name, given in keys.items()}


def shared(**shares: float | None) -> dict[str, ClientClass]:
    return {name: ClientClass(share=share) for name, share in shares.items()}


def plan(population: int = 60, seed: int = 1, **keys: Any) -> RunPlan:
    selection = {"protocol": "random", "participants": 1}
    aggregation = {"protocol": "plain"}
    base = {"seed": seed, "population": population, "selection": selection, "aggregation": aggregation}
    return RunPlan(Experiment.model_validate(base | {"links": {"transport": "tcp"}} | keys), 0)


def values(made: RunPlan) -> dict[str, np.ndarray]:
    """Return all link and device values of each client."""
    links: ClientLinks = made.links()
    return {
        "down": links.down.at(2.0), "up": links.up.at(2.0), "latency": links.latency_s, "loss": links.loss,
        "buffer": links.buffer_s, "factor": made.speed_factors(),
    }  # fmt: skip


def members(made: RunPlan) -> ClassMembers:
    assert made.class_members is not None
    return made.class_members


# -- shares -------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 200), min_size=1, max_size=5), st.integers(1000, 5000), st.integers(0, 2**32))
def test_counts_sum_to_the_population_and_are_next_to_the_shares(parts: list[int], population: int, seed: int) -> None:
    kinds = {f"c{number}": ClientClass(share=part / 1000) for number, part in enumerate(parts)} | {
        "rest": ClientClass()
    }
    exact = {f"c{number}": Fraction(part * population, 1000) for number, part in enumerate(parts)}
    counts = class_counts(kinds, population)
    assert sum(counts.values()) == population
    assert all(abs(counts[name] - quota) < 1 for name, quota in exact.items())
    drawn = draw_members(kinds, population, np.random.default_rng(seed))
    assert {name: int(drawn.are_in(name).sum()) for name in kinds} == counts
    reordered = draw_members(dict(reversed(kinds.items())), population, np.random.default_rng(seed))
    assert reordered.names == drawn.names
    assert reordered.class_of.tobytes() == drawn.class_of.tobytes()


def test_largest_remainders() -> None:
    assert class_counts(shared(a=0.47, b=0.16, c=0.12, d=0.25), 100) == {"a": 47, "b": 16, "c": 12, "d": 25}
    assert class_counts(shared(a=0.47, b=0.16, c=0.12, d=0.25), 10) == {"a": 5, "b": 2, "c": 1, "d": 2}
    assert class_counts(shared(b=0.5, a=0.5), 3) == {"a": 2, "b": 1}  # of equal ones the first by name
    assert class_counts(shared(a=0.1, b=0.2, c=0.7), 10) == {"a": 1, "b": 2, "c": 7}  # 0.1 + 0.2 + 0.7 are not 1
    assert class_counts(shared(a=0.333333, b=0.333333, c=0.333334), 300) == {"a": 100, "b": 100, "c": 100}
    assert class_counts(shared(a=0.3, b=None), 10) == {"a": 3, "b": 7}
    assert class_counts(shared(a=1, b=None, c=0), 5) == {"a": 5, "b": 0, "c": 0}


def test_rounding_errors_of_shares_are_assigned_to_no_class() -> None:
    """59/60 and 1/60, as decimals, are 3.4e-17 less than 1; 0.1, 0.2 and 0.7 of binary fractions 1e-16 more."""
    assert class_counts(shared(a=59 / 60, b=1 / 60, c=None), 60) == {"a": 59, "b": 1, "c": 0}
    assert class_counts(shared(a=0.3 + 5e-17, b=0.7000000000000001, c=None), 10) == {"a": 3, "b": 7, "c": 0}
    assert class_counts(shared(a=1 - 1e-9, b=None), 10**10) == {"a": 10**10 - 10, "b": 10}
    with pytest.raises(ValueError, match=naming("b.share", "1e-09", "100 clients")):
        class_counts(shared(a=1 - 1e-9, b=None), 100)


def test_members_of_a_class_are_drawn() -> None:
    kinds = shared(a=0.5, b=None)
    first, again, other = (draw_members(kinds, 1000, np.random.default_rng(seed)).are_in("a") for seed in (1, 1, 2))
    assert (first == again).all()
    assert 400 < (first == other).sum() < 600
    assert 200 < first[:500].sum() < 300


# -- links and devices --------------------------------------------------------------------------------------------

PHONES = {"up_mbit_s": RATE, "down_mbit_s": RATE, "latency_ms": DELAY, "loss": LOSS, "device": {"model": "log-normal"}}
FIBRE = {"up_mbit_s": 40, "latency_ms": 10, "buffer_ms": 7, "device": 2.5}


def test_a_class_overrides_only_the_keys_that_it_sets() -> None:
    keys: dict[str, Any] = {
        "links": {"transport": "tcp", "up_mbit_s": RATE, "latency_ms": DELAY, "loss": LOSS},
        "devices": {"model": "uniform"},
    }
    without = values(plan(**keys))
    made = plan(**keys, classes={"fibre": {"share": 0.3, **FIBRE}, "lossless": {"share": 0.2, "loss": 0}, "others": {}})
    fibre, lossless = members(made).are_in("fibre"), members(made).are_in("lossless")
    found = values(made)
    assert fibre.sum() == 18
    assert set(found["up"][fibre]) == {40 * BYTES_PER_MBIT}
    assert set(found["down"]) == {44 * BYTES_PER_MBIT}
    assert set(found["latency"][fibre]) == {0.01}
    assert set(found["buffer"][fibre]) == {0.007}
    assert set(found["factor"][fibre]) == {2.5}
    assert set(found["loss"][lossless]) == {0}
    for name in ("up", "latency", "factor", "buffer"):
        assert found[name][~fibre].tobytes() == without[name][~fibre].tobytes()
    assert found["loss"][~lossless].tobytes() == without["loss"][~lossless].tobytes()


@settings(max_examples=examples(40))
@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 2**40), st.booleans())
def test_a_client_that_stays_in_its_class_is_unchanged(before: int, after: int, seed: int, another: bool) -> None:
    """With any shares, and with or without another class."""

    def made(phones: int, with_another: bool) -> RunPlan:
        kinds: dict[str, Any] = {"phone": {"share": phones / 60, **PHONES}, "rest": {"latency_ms": DELAY}}
        if with_another and phones < 60:
            kinds = {"also": {"share": 1 / 60, **PHONES}, **kinds}
        return plan(seed=seed, classes=kinds)

    first, second = made(before, False), made(after, another)
    one, other = values(first), values(second)
    for name in ("phone", "rest"):
        stayed = members(first).are_in(name) & members(second).are_in(name)
        assert all(one[key][stayed].tobytes() == other[key][stayed].tobytes() for key in one)


def test_classes_draw_apart_from_one_another_and_the_seed_decides() -> None:
    kinds = {"a": {"share": 1 / 2, **PHONES}, "b": PHONES}
    first, again, other = (values(plan(classes=kinds, seed=seed)) for seed in (1, 1, 2))
    assert all(first[key].tobytes() == again[key].tobytes() for key in first)
    assert all(first[key].tobytes() != other[key].tobytes() for key in first if key != "buffer")
    renamed = values(plan(classes={"a": kinds["a"], "c": PHONES}))
    in_b = members(plan(classes=kinds)).are_in("b")
    for key in ("up", "latency", "factor"):
        assert first[key][~in_b].tobytes() == renamed[key][~in_b].tobytes()
        assert (first[key][in_b] != renamed[key][in_b]).all()


def test_traces_of_a_class(tmp_path: Path) -> None:
    (tmp_path / "fast.log").write_text("0 50\n1 70\n")
    (tmp_path / "slow.log").write_text("0 1\n1 3\n2 2\n")
    slow, fast = ({"trace": str(tmp_path / f"{name}.log"), "shift": False} for name in ("slow", "fast"))
    made = plan(
        links={"down_mbit_s": fast},
        classes={"tunnel": {"share": 0.5, "down_mbit_s": slow, "up_mbit_s": {**slow, "scale": 0.5}}, "rest": {}},
    )
    links, tunnel = made.links(), members(made).are_in("tunnel")
    for time_s, (there, elsewhere) in enumerate([(1, 50), (3, 70), (2, 50), (1, 70)]):
        down, up = (rates.at(float(time_s)) / BYTES_PER_MBIT for rates in (links.down, links.up))
        assert (set(down[tunnel]), set(down[~tunnel])) == ({there}, {elsewhere})
        assert (set(up[tunnel]), set(up[~tunnel])) == ({there / 2}, {44})
    assert set(links.down.mean()[tunnel] / BYTES_PER_MBIT) == {2}


def test_both_directions_of_one_file_are_of_one_device_also_if_one_is_of_the_class(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("down,up\n" + "".join(f"{row + 1},{10 * row + 10}\n" for row in range(9)))
    forms = {key: {"table": str(tmp_path / "t.csv"), "column": key} for key in ("down", "up")}
    made = plan(links={"down_mbit_s": forms["down"]}, classes={"a": {"share": 0.5, "up_mbit_s": forms["up"]}, "b": {}})
    links, in_a = made.links(), members(made).are_in("a")
    np.testing.assert_allclose(links.up.mean()[in_a], 10 * links.down.mean()[in_a])
    assert len(set(links.down.mean()[in_a])) > 3


def test_outages_of_a_class_and_of_all() -> None:
    often = {"mean_between_s": 10, "mean_length_s": 10}
    made = plan(classes={"train": {"share": 0.5, "outages": often, "up_mbit_s": 8}, "desk": {}})
    links, train = made.links(), members(made).are_in("train")
    assert ((links.down.at(5.0) == 0) == (links.up.at(5.0) == 0)).all()
    assert 5 < (links.up.at(5.0)[train] == 0).sum() < 25
    assert (links.up.mean()[~train] == 44 * BYTES_PER_MBIT).all()
    assert abs(links.up.mean()[train].mean() / BYTES_PER_MBIT - 4) < 0.5
    made = plan(links={"outages": often}, classes={"fast": {"share": 0.5, "down_mbit_s": 99}, "slow": {}})
    links, fast = made.links(), members(made).are_in("fast")
    assert ((links.down.at(5.0) == 0) == (links.up.at(5.0) == 0)).all()
    assert set(links.down.at(5.0)[fast] / BYTES_PER_MBIT) == {0, 99}


def test_a_users_own_device_model_for_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counted:
        def __init__(self, section: Devices, first: float) -> None:
            self.first = first

        def speed_factors(self, population: int, generator: np.random.Generator) -> np.ndarray:
            factors = self.first + np.arange(population)
            factors.flags.writeable = False
            return factors

    module = ModuleType("phones")
    module.Counted = Counted  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "phones", module)
    own = {"model": "phones:Counted", "options": {"first": 3.0}}
    made = plan(devices=own, classes={"a": {"share": 0.5, "device": 2}, "b": {}})
    assert set(made.speed_factors()[members(made).are_in("a")]) == {2}
    made = plan(classes={"a": {"share": 0.5, "device": own}, "b": {}})
    in_a = members(made).are_in("a")
    assert (made.speed_factors() == np.where(in_a, 3 + np.arange(60), 1)).all()
    misspelt = {"model": "phones:Counted", "options": {"frist": 3.0}}
    with pytest.raises(ExperimentError, match=r"^classes\.a\.device\.options\.frist: "):
        plan(classes={"a": {"share": 0.5, "device": misspelt}, "b": {}}).speed_factors()


def test_a_million_clients() -> None:
    made = plan(10**6, classes={"a": {"share": 0.5, **PHONES}, "b": FIBRE})
    assert members(made).are_in("a").sum() == 500_000
    assert set(made.links().latency_s[members(made).are_in("b")]) == {0.01}


# -- mistakes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kinds", "links", "says"),
    [
        ({"a": {"share": 0.5}, "b": {"share": 0.4}}, {}, "b.share: the shares of the classes sum to 0.9, and must sum"),
        ({"a": {"share": 0.8}, "b": {"share": 0.4}, "c": {}}, {}, "b.share: the shares of the classes sum to 1.2, and"),
        (
            {"a": {}, "b": {}, "c": {"share": 0.4}},
            {},
            "b.share: is required",
        ),
        ({"a": {"share": 0.01}, "b": {}}, {}, "a.share: 0.01 of 20 clients"),
        ({"a.b": {}}, {}, "'a.b': not a class name"),
        ({"a": {"loss": 0.1}}, {}, "a: `loss` needs a transport"),
        ({"a": {"up_mbit_s": 3}}, {"model": "m:C"}, "a.up_mbit_s: links.model, a user-defined class"),
        ({"a": {"latency_ms": {"trace": "x"}}}, {}, "a.latency_ms: traces are allowed only in `links`"),
        (
            {"a": {"loss": 0.1}},
            {"loss": {"trace": "x"}, "transport": "tcp"},
            "a.loss: traces are allowed only in `links`",
        ),
        (
            {"a": {"up_mbit_s": {"trace": "x"}}},
            {"outages": {"mean_between_s": 1, "mean_length_s": 1}},
            "a: `outages` cannot be combined with",
        ),
    ],
)
def test_classes_that_cannot_be(kinds: dict[str, Any], links: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+$") as refused:
        check_classes(classes_of(kinds), Links.model_validate({"transport": "none"} | links), 20)
    assert str(refused.value).startswith(says)


def test_devices_of_a_class_beside_links_of_ones_own() -> None:
    check_classes(classes_of({"a": {"share": 0.5, "device": 3}, "b": {}}), Links(model="m:C"), 20)
