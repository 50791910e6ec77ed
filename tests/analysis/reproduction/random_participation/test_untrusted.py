"""Section 5.5: a tiny federation with each kind of server, and claims on made-up measurements."""

from dataclasses import replace

import pandas as pd
import pytest

from analysis.bounds.random_participation import Participation
from analysis.reproduction.contract import Measurements, ReproductionContext, Setting
from analysis.reproduction.measurements import carry_out
from analysis.reproduction.random_participation import untrusted
from analysis.reproduction.random_participation.untrusted import EVERYBODY, PARTICIPANTS, SERVERS, TRUSTED

TINY = replace(
    untrusted.TASK,
    workload={"dataset": "digits", "model": "logistic"},
    population=20,
    participation=Participation(8, 0.2, 0.5),
    rounds=4,
    rates=dict.fromkeys(SERVERS, (0.01, 1.0)),
    seeds=2,
    evaluations=2,
)


def test_a_tiny_federation_with_each_kind_of_server(
    context: ReproductionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(untrusted, "TASK", TINY)
    monkeypatch.setattr(untrusted, "REPETITIONS", 2)
    measurements, result = carry_out(untrusted.REPRODUCTIONS[0], context)
    assert measurements is not None
    assert result.table["server"].tolist() == [TRUSTED, EVERYBODY, PARTICIPANTS]
    traffic = result.table.set_index("server")["server traffic of a round [MB]"]
    assert traffic[EVERYBODY] > 3 * traffic[TRUSTED]
    assert traffic[PARTICIPANTS] == pytest.approx(traffic[TRUSTED], rel=0.01)
    assert (result.claims[1].checks[0].value or 0) > 3
    assert len(measurements.tables["evaluations"]) == 3 * 2 * 2
    seconds = measurements.tables["seconds"]
    assert (seconds[["gradients [s]", "noise [s]", "noise of numpy [s]"]] > 0).all(axis=None)


def test_clients_that_do_not_take_part_compute_no_gradients() -> None:
    counted = untrusted.count_gradients()
    assert len(counted) == untrusted.COUNTED_ROUNDS
    expected = untrusted.COUNTED_RATE * untrusted.COUNTED_CLIENTS
    assert counted["computed"].mean() == pytest.approx(expected, abs=5)


def made_up(accuracy: dict[str, float], noise: float) -> Measurements:
    """Return measurements with these late accuracies, and this time of a client's noise beside 1 s of gradients."""
    rows = [
        {"seed": seed, "server": server, "round": 10, "accuracy [%]": value + seed / 10}
        for server, value in accuracy.items()
        for seed in (1, 2, 3)
    ]
    tried = [{"seed": 0, "server": server, "learning rate": 0.1, "accuracy [%]": 50.0} for server in accuracy]
    traffic = [
        {"seed": seed, "server": server, "rounds": 10, "server traffic [bytes]": 10 if server == EVERYBODY else 5}
        for server in accuracy
        for seed in (1, 2, 3)
    ]
    times = {"gradients [s]": 1.0, "noise [s]": noise, "noise of numpy [s]": noise}
    seconds = [
        {"figure": figure, "repetition": place, **times} for figure in ("Figure 6", "Figure 7") for place in (0, 1)
    ]
    sizes = {"clients": 20, "client rate": 0.2, "sample rate": 0.5, "rounds": 10, "sigma": 1.0}
    return Measurements(
        Setting("stand-in", "made up", seeds=[1, 2, 3], sizes=sizes, differs=["Scale and data: made up."]),
        {
            "evaluations": pd.DataFrame(rows),
            "learning rates": pd.DataFrame(tried),
            "traffic": pd.DataFrame(traffic),
            "gradients": pd.DataFrame({"round": [1, 2], "available": [300, 300], "computed": [30, 30]}),
            "seconds": pd.DataFrame(seconds),
        },
    )


@pytest.mark.parametrize(
    ("everybody", "participants", "noise", "verdicts"),
    [
        (50.0, 60.0, 0.01, ["agrees", "agrees", "agrees"]),
        (50.0, 90.0, 1.0, ["partly", "agrees", "partly"]),
        (90.0, 90.0, 1.0, ["disagrees", "agrees", "partly"]),
    ],
)
def test_claims_follow_the_measurements(
    everybody: float, participants: float, noise: float, verdicts: list[str]
) -> None:
    measurements = made_up({TRUSTED: 80.0, EVERYBODY: everybody, PARTICIPANTS: participants}, noise)
    assert [claim.verdict for claim in untrusted.conclude_untrusted(measurements).claims] == verdicts
