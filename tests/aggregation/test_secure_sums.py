"""Thresholds, masks and batches of every secure sum, beside the checks of tests/conformance."""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from testbed.aggregation.flamingo.parameters import FlamingoParameters
from testbed.aggregation.flamingo.server import Flamingo
from testbed.aggregation.lightsecagg.parameters import LightSecAggParameters
from testbed.aggregation.lightsecagg.server import LightSecAgg
from testbed.aggregation.one_shot.parameters import OneShotParameters
from testbed.aggregation.one_shot.server import OneShot
from testbed.aggregation.pine.parameters import PineParameters
from testbed.aggregation.pine.server import Pine
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.aggregation.secagg.server import SecAgg
from testbed.batches import Batches
from testbed.errors import RoundAborted
from tests.aggregation.federations import SmallFederation

ERROR = 2 / (2**16 - 1)  # of a mean of quantised updates
DELTAS = np.random.default_rng(1).uniform(-0.1, 0.1, (9, 12)).astype(np.float32)


def committee(members: tuple[int, ...], threshold: int) -> dict[str, Any]:
    return {"selection": "given", "members": members, "threshold": threshold}


SIX = committee((0, 1, 2, 3, 4, 5), 4)
FIVE = committee((1, 2, 4, 6, 7), 3)
SET_UP = ("flamingo/set-up-deal", "flamingo/set-up-check", "flamingo/set-up-finish")


@dataclass(frozen=True)
class Case:
    """A protocol with just enough answers at each stage without `few`, and one too few without `many`."""

    protocol: Any
    parameters: Any
    clients: int
    few: set[int]
    many: set[int]
    message: str
    upload: str
    stages: tuple[str, ...]

    def federation(self, parameters: Any = None, **more: Any) -> SmallFederation:
        return SmallFederation(DELTAS[: self.clients], parameters or self.parameters, protocol=self.protocol, **more)


CASES = {
    "secagg": Case(
        SecAgg, SecAggParameters(threshold=4), 7, {0, 3, 6}, {0, 2, 3, 6}, "3 of 4 needed", "secagg/masked-input",
        ("train", *SecAgg.stages),
    ),
    "lightsecagg": Case(
        LightSecAgg, LightSecAggParameters(threshold=4, max_colluders=2), 7, {0, 3, 6}, {0, 2, 3, 6}, "3 of 4 needed",
        "lightsecagg/masked-input", ("train", *LightSecAgg.stages),
    ),
    "one-shot": Case(
        OneShot, OneShotParameters(committee=SIX, max_colluders=1, min_survivors=2), 9, {3, 6, 7, 8}, {1, 2, 3},
        "3 of 4 needed members", "one-shot/masked-input", ("train", *OneShotParameters.stages),
    ),
    "flamingo": Case(
        Flamingo, FlamingoParameters(committee=FIVE, dropouts=0.5), 9, {1, 2}, {1, 2, 4}, "2 of 3 needed",
        "flamingo/report", (*SET_UP, *FlamingoParameters.stages),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "stage"), [(name, stage) for name, case in CASES.items() for stage in case.stages])
def test_as_many_as_must_answer_are_enough_at_every_stage_and_one_fewer_ends_the_round(name: str, stage: str) -> None:
    case = CASES[name]
    aggregate = case.federation(leaving={stage: case.few}).run()
    lost = case.few if case.stages.index(stage) <= case.stages.index(case.upload) and stage not in SET_UP else set()
    if name == "flamingo" and stage in SET_UP:  # a client that leaves is not asked to report
        lost = case.few
    survivors = sorted(set(range(case.clients)) - lost)
    assert aggregate.survivors.tolist() == survivors
    assert np.abs(aggregate.mean - DELTAS[survivors].mean(0)).max() <= ERROR
    with pytest.raises(RoundAborted, match=rf"below-threshold.*{case.message}"):
        case.federation(leaving={stage: case.many}).run()


@pytest.mark.parametrize(
    ("protocol", "parameters", "size", "middle"),
    [
        (LightSecAgg, LightSecAggParameters(threshold=3, max_colluders=1, weights="equal"), 4, 2**31),
        (OneShot, OneShotParameters(committee=committee((0, 1, 2, 3), 3), max_colluders=1, weights="equal"), 5, 2**30),
        (Flamingo, FlamingoParameters(committee=committee((0, 1, 2), 2), dropouts=0.5, weights="equal"), 5, 2**31),
    ],
)
def test_what_is_uploaded_is_masked(protocol: Any, parameters: Any, size: int, middle: int) -> None:
    """Clients with one update send different vectors, uniform in the ring: none shows its update."""
    small = SmallFederation(np.zeros((size, 9000)), parameters, protocol=protocol)
    small.run()
    stage = next(host for host in small.hosts.hosts if host._vectors)
    vectors = [vector.values for found in stage._vectors.values() for vector in found.values() if vector.bits]
    assert len(vectors) >= 2
    for left, right in itertools.combinations(vectors, 2):
        assert (left == right).mean() < 0.001
    assert all(abs(float(vector.mean()) / middle - 1) < 0.05 for vector in vectors)


@pytest.mark.parametrize(
    ("protocol", "parameters", "stage"),
    [
        (LightSecAgg, LightSecAggParameters(threshold=4, max_colluders=1), "lightsecagg/masked-input"),
        (
            OneShot,
            OneShotParameters(committee=committee((0, 1, 2, 3, 6, 7), 4), max_colluders=1, min_survivors=4),
            "one-shot/masked-input",
        ),
        (Flamingo, FlamingoParameters(committee=FIVE, dropouts=0.5), "flamingo/report"),
        (Pine, PineParameters(min_survivors=4), "pine/report"),
    ],
)
def test_two_of_three_batches_that_lose_a_member_leave_too_few(protocol: Any, parameters: Any, stage: str) -> None:
    batches = Batches(np.repeat(np.arange(3), 3))
    small = SmallFederation(DELTAS, parameters, protocol=protocol, batches=batches, leaving={stage: {4}})
    assert small.run().survivors.tolist() == [0, 1, 2, 6, 7, 8]
    small = SmallFederation(DELTAS, parameters, protocol=protocol, batches=batches, leaving={stage: {5, 8}})
    with pytest.raises(RoundAborted, match="too-few-in-whole-batches"):
        small.run()


@pytest.mark.parametrize("case", [*CASES.values(), Case(Pine, PineParameters(), 9, {1}, set(), "", "pine/report", ())])
def test_secrets_of_the_operating_system_do_as_well(case: Case) -> None:
    """The sum depends on the rounding alone, never on the masks."""
    leaving = {case.upload: {1, 3} & case.few}
    seeded, fresh = (case.federation(leaving=leaving, secrets_from_system=system).run() for system in (False, True))
    assert seeded.survivors.tolist() == fresh.survivors.tolist()
    assert seeded.mean.tobytes() == fresh.mean.tobytes()
