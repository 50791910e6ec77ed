"""Table 2 at a tiny scale: its experiments, and the verdicts on its claims."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
import pytest

from analysis.reproduction.contract import ReproductionContext
from analysis.reproduction.lotto import tables
from analysis.reproduction.lotto.overhead import (
    COST_TABLES,
    SCALES,
    SILENT,
    VERIFIED,
    OverheadScale,
    cost_of,
    experiment,
    rounds_of,
)
from analysis.reproduction.lotto.published import (
    APPLICATIONS,
    PARTICIPANTS,
    TABLE_2,
    minutes_spread,
    overhead_spread,
    proofs_s,
)
from analysis.reproduction.lotto.table_claims import claims_of_table2, claims_of_table3
from analysis.reproduction.lotto.tables import RANDOM_SELECTIONS
from analysis.reproduction.measurements import carry_out
from analysis.reproduction.verdicts import PaperClaim
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


def test_the_authors_costs_replace_the_reference_costs(tiny: OverheadScale) -> None:
    theirs = experiment(tiny, "FEMNIST", "authors", 12, [{"protocol": "random"}]).time.costs
    assert theirs["vrf.verify"] == 0.226
    assert theirs["mask.element"] == pytest.approx(1.02e-6, rel=0.01)


def test_the_cost_of_training_is_the_models() -> None:
    costs = {
        application: experiment(SCALES["paper"], application, "testbed", 100, [{"protocol": "random"}]).time.costs
        for application in APPLICATIONS
    }
    assert all(set(of_it) == {"train.parameter_example"} for of_it in costs.values())
    seconds = [costs[application]["train.parameter_example"] for application in APPLICATIONS]
    assert seconds == pytest.approx([0.33e-9, 30 * 0.33e-9, 60 * 0.33e-9])


def test_the_server_verifies_in_one_row_and_not_in_the_papers(
    context: ReproductionContext, tiny: OverheadScale
) -> None:
    frame = carry_out(tables.REPRODUCTIONS[0], context)[1].table
    rows = frame[frame["costs"] == "authors"].set_index(["population", "protocol"])
    for population in tiny.participants:
        paper, verified = (rows.loc[(population, protocol)] for protocol in ("Cli-Ctr", VERIFIED))
        proofs = (verified["server compute s"] - paper["server compute s"]) / 0.226
        assert proofs >= tiny.participants[population] - 1e-6  # of all candidates; nothing else differs
        assert 2 * proofs == pytest.approx(round(2 * proofs), abs=0.01)  # of two rounds
        assert verified["server min"] - paper["server min"] == pytest.approx(proofs * 0.226 / 60, rel=0.01)
    assert frame["compute %"].between(0, 100).all()
    shares = rows["compute %"].unstack()
    assert (shares[VERIFIED] > shares["Cli-Ctr"]).all()  # more compute, the same transfers
    assert (shares[SILENT] < shares["Cli-Ctr"]).all()  # the same compute, and a deadline


def test_simulated_training_costs_what_real_training_costs(context: ReproductionContext, tiny: OverheadScale) -> None:
    costs = []
    for training in ("real", "simulated"):
        block = experiment(tiny, "FEMNIST", "testbed", 12, [{"protocol": "lotto-client-centric"}], training)
        (run,) = context.run_experiment(block, context.out / training)
        costs.append(cost_of(rounds_of(run)))
    assert costs[0] == costs[1]


def test_the_authors_candidates_make_one_proof(tiny: OverheadScale) -> None:
    theirs = experiment(tiny, "FEMNIST", "authors", 12, [{"protocol": "random"}]).time.costs
    assert theirs["vrf.output"] + theirs["vrf.prove"] == 0.302
    assert [round(proofs_s(count), 1) for count in PARTICIPANTS.values()] == [2.3, 9.1, 15.9]


def test_margins_are_the_differences_of_the_papers_own_runs() -> None:
    assert overhead_spread("server_min") == pytest.approx(0.0804, abs=1e-3)
    assert overhead_spread("client_min") == pytest.approx(0.0635, abs=1e-3)
    assert minutes_spread("server_min") == pytest.approx(1.76 / 1.46)
    assert minutes_spread("client_min") == pytest.approx(0.97 / 0.83)


def _frame(
    change: Mapping[tuple[str, str], float] = {}, added_mb: Mapping[str, float] = {}, megabytes: float = 1.0
) -> pd.DataFrame:
    """The paper's own cells as if they had been measured, with factors on (protocol, heading) and on the traffic."""
    rows: list[dict[str, Any]] = []
    for costs in COST_TABLES:
        for application in APPLICATIONS:
            for population in PARTICIPANTS:
                base = TABLE_2[application, population, "Rand"]
                for protocol in ("Rand", "Cli-Ctr", VERIFIED, "Srv-Ctr", SILENT):
                    cost = TABLE_2.get((application, population, protocol), base)
                    row: dict[str, Any] = {
                        "application": application, "costs": costs, "population": population, "protocol": protocol
                    }  # fmt: skip
                    for party in ("server", "client"):
                        paper, of_base = getattr(cost, f"{party}_min"), getattr(base, f"{party}_min")
                        ours = paper * change.get((protocol, party), 1)
                        row |= {f"{party} min": ours, f"{party} ×": ours / of_base, f"{party} MB ×": 1.0}
                        if protocol not in (VERIFIED, SILENT):
                            row |= {f"{party} min (paper)": paper, f"{party} × (paper)": paper / of_base}
                        row[f"{party} MB"] = getattr(cost, f"{party}_mb") * megabytes
                        if protocol not in (VERIFIED, SILENT):
                            row[f"{party} MB (paper)"] = getattr(cost, f"{party}_mb")
                    if added_mb:
                        row["server MB"] = base.server_mb + added_mb.get(protocol, 0)
                    rows.append(row)
    return pd.DataFrame(rows)


ADDED = {"Cli-Ctr": 1.3, "Srv-Ctr": 0.3}


def _verdicts(*words: str, **changes: Any) -> set[str]:
    found = [claim for claim in claims_of_table2(_frame(**changes)) if all(word in claim.claim for word in words)]
    assert found
    return {claim.verdict for claim in found}


def test_the_papers_own_cells_agree_with_it() -> None:
    claims = claims_of_table2(_frame(added_mb=ADDED))
    differ = {claim.claim: claim.verdict for claim in claims if claim.verdict != "agrees"}
    assert set(differ.values()) == {"partly", "undetermined"}
    assert {claim.split(" more time")[0] for claim in differ} == {
        "Cli-Ctr takes the server less than 6, 8 and 10%",  # the text's limits are below its own table
        "Srv-Ctr takes the server 1, 4 and 3%",
    }


def test_misprints_are_the_tables_own_cells() -> None:
    (first, *_) = claims_of_table2(_frame(added_mb=ADDED))
    assert "misprint: Table 2 itself has 10.40% at 700 clients" in first.claim
    (first, *_) = claims_of_table3(_frame(added_mb=ADDED))
    assert "5.19% at 100 clients and 10.00% at 400 clients and 5.25% at 700 clients" in first.claim


@pytest.mark.parametrize("factor", [0.5, 2.0])
@pytest.mark.parametrize(("party", "column"), [("server", "server"), ("participant", "client")])
def test_cells_are_judged_in_both_directions(party: str, column: str, factor: float) -> None:
    change = {("Cli-Ctr", column): factor}
    assert _verdicts(": Cli-Ctr takes", f"the {party} +", change=change) == {"disagrees"}
    every = {(protocol, column): factor for protocol in ("Rand", "Cli-Ctr", "Srv-Ctr")}
    assert _verdicts(f"the {party}'s minutes", change=every) == {"disagrees"}


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "agrees"), (1.2, "disagrees"), (0.5, "disagrees")])
def test_absolute_traffic_is_judged_in_both_directions(factor: float, verdict: str) -> None:
    assert _verdicts("the participant's MB", megabytes=factor) == {verdict}
    assert _verdicts("the server's MB", megabytes=factor) == {verdict}


def test_extra_time_of_participants_is_on_the_path_of_the_round_or_not() -> None:
    assert _verdicts("footnote 4") == {"agrees"}  # the paper's cells
    # The round is longer by as much as the participants' work.
    frame = _frame(added_mb=ADDED)
    for heading, base in (("server min", 10.0), ("client min", 5.0)):
        frame[heading] = base + (frame["protocol"] == "Cli-Ctr")
    (claim,) = [claim for claim in claims_of_table2(frame) if "footnote 4" in claim.claim]
    assert claim.verdict == "disagrees"
    assert "1.00 to 1.00" in claim.measured


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "agrees"), (0.8, "disagrees"), (1.2, "disagrees")])
def test_up_to_40_percent_means_about_40(factor: float, verdict: str) -> None:
    assert _verdicts("up to 40%", change={("Cli-Ctr", "client"): factor}) == {verdict}


def test_the_silent_rows_decide_no_claim() -> None:
    frame = _frame(added_mb=ADDED)
    with_silence = frame.copy()
    with_silence.loc[frame["protocol"] == SILENT, ["server ×", "client ×", "server min"]] = 9.0

    def without_words(claims: list[PaperClaim]) -> list[tuple[str, str]]:
        return [(claim.claim, claim.verdict) for claim in claims]

    assert without_words(claims_of_table2(frame)) == without_words(claims_of_table2(with_silence))


def test_rounds_that_were_never_completed_are_not_run() -> None:
    frame = _frame(added_mb=ADDED)
    headings = [f"{party} {cell}" for party in ("server", "client") for cell in ("×", "min", "MB ×", "MB")]
    frame[headings] = float("nan")
    outcomes = {(claim.verdict, claim.not_run) for claim in claims_of_table2(frame)}
    assert outcomes == {("not run", "length"), ("undetermined", "")}
    assert all(claim.judged for claim in claims_of_table2(frame))


@pytest.mark.parametrize(
    ("cli_ctr", "srv_ctr", "verdict"),
    [(1.3, 0.3, "agrees"), (1.3, 0.7, "partly"), (13.0, 7.0, "disagrees"), (0.1, 0.01, "disagrees")],
)
def test_added_megabytes_are_compared_with_the_papers(cli_ctr: float, srv_ctr: float, verdict: str) -> None:
    assert _verdicts("1.3 MB", added_mb={"Cli-Ctr": cli_ctr, "Srv-Ctr": srv_ctr}) == {verdict}
