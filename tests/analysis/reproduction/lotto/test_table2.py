"""Table 2, tiny: what is run, and how claims are judged."""

import pandas as pd
import pytest

from analysis.reproduction.lotto.overhead import COST_TABLES, SCALES, SILENT, OverheadScale, experiment
from analysis.reproduction.lotto.tables import RANDOM_SELECTIONS, claims_of_table2, largest
from testbed.experiment.schema import check_points, points


@pytest.mark.parametrize("scale", sorted(SCALES))
def test_every_experiment_validates(scale: str) -> None:
    size = SCALES[scale]
    for application in size.applications:
        for costs in COST_TABLES:
            for population in size.participants:
                block = experiment(size, application, costs, population, list(RANDOM_SELECTIONS.values()))
                all_points = list(points(block, "table 2"))
                check_points([(point.label, point.experiment) for point in all_points])
                for point in all_points:
                    assert point.experiment.selection.participants == size.participants[population]
                    assert point.experiment.rounds == size.rounds_of(application, population)
                    assert str(point.experiment.rounds) in str(size)


def test_the_authors_costs_replace_those_that_are_known(tiny: OverheadScale) -> None:
    ours, theirs = (
        experiment(tiny, "FEMNIST", costs, 8, [{"protocol": "random"}]).time.costs for costs in ("testbed", "authors")
    )
    assert ours == {}
    assert theirs["vrf.verify"] == 0.226
    assert theirs["mask.element"] == pytest.approx(1.02e-6, rel=0.01)


def _frame(**ratios: list[float]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "application": "FEMNIST",
            "costs": ["testbed", "testbed", "authors", "authors"],
            "population": [100, 700, 100, 700],
            "protocol": "Cli-Ctr",
            **ratios,
        }
    )


@pytest.mark.parametrize(
    ("ratios", "agrees"),
    [([1.0, 1.1, 1.02, 1.03], "yes"), ([1.0, 1.2, 1.02, 1.03], "partly"), ([1.5, 1.2, 1.02, 1.3], "no")],
)
def test_a_claim_holds_when_it_holds_in_every_cell(ratios: list[float], agrees: str) -> None:
    claim = largest(_frame(**{"server ×": ratios}), "Cli-Ctr", "server ×", "at most 10%", 1.10)
    assert claim.agrees == agrees
    assert f"the testbed's costs: at most {100 * (max(ratios[:2]) - 1):+.2f}% (FEMNIST, " in claim.measured


def test_a_claim_about_nothing_cannot_be_judged() -> None:
    claim = largest(_frame(**{"server ×": [float("nan")] * 4}), "Cli-Ctr", "server ×", "at most 10%", 1.10)
    assert claim.agrees is None


def _whole(added_mb: dict[str, float]) -> pd.DataFrame:
    """All three protocols, nothing costing anything but `added_mb` at the server."""
    ones = {name: [1.0] * 4 for name in ("server ×", "client ×", "server MB ×", "client MB ×")}
    rows = [
        _frame(**ones, **{"server MB": [100.0 + added_mb.get(name, 0.0)] * 4}).assign(protocol=name)
        for name in ("Rand", "Cli-Ctr", "Srv-Ctr", SILENT)
    ]
    return pd.concat(rows)


def test_the_silent_rows_decide_no_claim() -> None:
    frame = _whole({"Cli-Ctr": 1.2, "Srv-Ctr": 0.4})
    frame.loc[frame["protocol"] == SILENT, "server ×"] = 9.0
    assert {claim.agrees for claim in claims_of_table2(frame)} == {"yes"}


@pytest.mark.parametrize(
    ("cli_ctr", "srv_ctr", "agrees"),
    [(1.3, 0.3, "yes"), (1.3, 0.7, "partly"), (13.0, 7.0, "no"), (float("nan"), 0.3, None)],
)
def test_added_megabytes_are_held_against_the_papers(cli_ctr: float, srv_ctr: float, agrees: str | None) -> None:
    claim = claims_of_table2(_whole({"Cli-Ctr": cli_ctr, "Srv-Ctr": srv_ctr}))[-1]
    assert claim.agrees == agrees
