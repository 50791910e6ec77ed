"""Success of an adversary, from the records: refused and completed rounds, and Theorem 2."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from analysis.attacks.outcomes import NEVER_CARRIED_OUT, adversaries, attack_outcome, render
from analysis.bounds.lotto import dishonest_fraction_exceeds
from analysis.statistics import Proportion
from testbed.engine.in_process import run_in_process
from testbed.errors import ExperimentError
from testbed.experiment.schema import validated
from testbed.records import RunDirectory, RunRecords
from tests.former_defaults import with_former_defaults
from tests.messages_named import naming

LOTTO = {"protocol": "lotto-client-centric", "participants": 4, "over_selection": 2.0, "min_population": 10}


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[..., RunRecords]:
    """A real run, in this process, with a workload that learns nothing."""
    pytest.importorskip("torch")
    from workloads import build

    def record(name: str, adversary: dict[str, Any] | None, **changes: Any) -> RunRecords:
        workload = {"dataset": "digits", "model": "logistic", "batch_size": 100, "evaluate_every": 100}
        base = {"name": name, "seed": 1, "rounds": 6, "population": 20, "workload": workload, "selection": LOTTO}
        keys = base | {"aggregation": {"protocol": "plain"}, "time": {"compute": "modelled"}} | changes
        attacked = {} if adversary is None else {"adversary": adversary}
        experiment = validated(with_former_defaults(keys | attacked), name)
        directory = RunDirectory.create(tmp_path / name, experiment.plain())
        run_in_process(experiment, build(experiment.workload, 20, 1), 1, directory, lambda progress: None)
        return RunRecords(tmp_path / name)

    return record


def test_rounds_are_counted_by_what_became_of_them(recorded: Callable) -> None:
    run = recorded("twice", {"dishonest": 0.3, "server": ["list-twice"], "from_round": 2, "every": 2})
    found = attack_outcome(run)
    reached = run.rounds.loc[run.rounds["participants"] > 0, "round"]
    assert found.planned == 3
    assert found.attacked == sum(number in (2, 4, 6) for number in reached)
    assert found.refused == found.attacked > 0
    assert found.completed == 0
    assert found.checks == (("lotto.duplicate-client", "lotto/participants", found.refused),)
    assert found.exceeding(0) == Proportion.of(0, 3)


def test_a_round_that_only_leaves_cheats_out_is_not_refused(recorded: Callable) -> None:
    adversary = {"dishonest": 0.3, "clients": ["claim-candidacy"]}
    run = recorded("claimed", adversary)
    found = attack_outcome(run)
    seen = run.events[run.events["kind"].isin(["misbehaviour", "refusal"])]
    completed = run.rounds.loc[run.rounds["outcome"] == "completed", "round"]
    refusing = set(seen.loc[seen["kind"] == "refusal", "round"])
    expected = {number for number in seen["round"] if number in set(completed) and number not in refusing}
    assert found.left_out == len(expected) > 0
    assert (found.refused, found.detected) == (
        found.attacked - found.left_out - found.completed,
        len(set(seen["round"])),
    )
    text = render(adversaries([run]))
    assert "Cheaters excluded: attacked rounds" in " ".join(text.split())
    assert "No honest participant" not in text  # neither a head nor a note on one that is not there
    assert "Updates recovered" not in text


def test_rounds_without_an_honest_participant_are_not_held_against_theorem_2(recorded: Callable) -> None:
    """A list of accomplices alone is verified by nobody, so that any number of them may be on it."""
    server = ["keep-dishonest-candidates", {"tell-different-populations": {"to": 4}}]
    run = recorded("unverified", {"dishonest": 0.5, "server": server})
    found = attack_outcome(run)
    assert found.all_dishonest == found.dishonest.count(4) > 0
    assert found.exceeding(3).count == 0
    (row,) = json.loads(render(adversaries([run], eta=1.9), "json"))["rows"]
    assert row["exceeded"] == sum(x > 3 for x in found.dishonest_if_verified) == 0  # floor(1.9 * 2)
    assert "No honest participant" in render(adversaries([run]))


def test_completed_rounds_count_their_dishonest_participants(recorded: Callable) -> None:
    run = recorded("kept", {"dishonest": 6, "server": ["keep-dishonest-candidates"]})
    found = attack_outcome(run)
    rows = run.participation
    completed = run.rounds.loc[run.rounds["outcome"] == "completed", "round"]
    by_hand = [int(rows[rows["round"] == number]["dishonest"].sum()) for number in completed]
    assert list(found.dishonest) == by_hand
    assert found.refused == 0
    (row,) = json.loads(render(adversaries([run], eta=1.5), "json"))["rows"]
    assert row["due"] == pytest.approx(4 * 6 / 20)
    assert row["exceeded"] == sum(1 < x < 4 for x in by_hand) > 0  # floor(1.5 * 1.2); of four, one must be honest
    assert row["rate"] == row["exceeded"] / 6
    assert row["bound"] == dishonest_fraction_exceeds(20, 6, 4, 2.0, 1.5, 10)
    assert row["distribution"] == [by_hand.count(x) for x in range(5)]


def test_dishonest_clients_that_do_nothing_are_counted_in_all_rounds(recorded: Callable) -> None:
    run = recorded("idle", {"dishonest": 0.5}, selection={"participants": 4})
    found = attack_outcome(run)
    assert (found.planned, found.attacked, found.completed, len(found.dishonest)) == (6, 0, 0, 6)
    assert sum(found.dishonest) == run.participation["dishonest"].sum() > 0
    (row,) = json.loads(render(adversaries([run]), "json"))["rows"]
    assert row["bound"] is None
    assert NEVER_CARRIED_OUT not in render(adversaries([run]))


def test_an_attack_that_never_happened_has_no_success(recorded: Callable) -> None:
    selection = {"participants": 4}
    aggregation = {"protocol": "secagg"}
    run = recorded("never", {"dishonest": 0.3, "server": ["break-batch"]}, selection=selection, aggregation=aggregation)
    (row,) = json.loads(render(adversaries([run]), "json"))["rows"]
    assert (row["planned"], row["attacked"], row["completed"], row["counted"]) == (6, 0, 0, 6)
    assert row["mean"] == run.participation["dishonest"].sum() / 6
    assert NEVER_CARRIED_OUT in render(adversaries([run]))


def test_the_table_in_every_format(recorded: Callable) -> None:
    runs = [
        recorded("one", {"dishonest": 0.3, "server": [{"reuse-round": {"round": 2}}], "clients": ["inflate-utility"]}),
        recorded("none", None),
    ]
    frame = adversaries(runs, eta=3)
    assert len(frame) == 1
    text = render(frame)
    assert "reuse-round (round=2) + inflate-utility" in text
    assert "lotto.round-reused at lotto/announce" in text
    assert "Above 3× expected" in text
    first, second = (line.split("  ") for line in text.splitlines() if line.startswith("Adversary "))
    assert [head.strip() for head in first if head.strip()] == [
        "Adversary", "Rounds", "Attacked", "Attacks refused", "Completed undetected", "Failed checks (rounds)",
    ]  # fmt: skip
    assert [head.strip() for head in second if head.strip()][1:] == [
        "Dishonest participants, mean", "maximum", "expected", "Above 3× expected", "95% interval", "Lotto's bound",
    ]  # fmt: skip
    for head in ("Attacks refused: ", "Completed undetected: ", "Expected: ", "Above 3× expected: ", "Lotto's bound: "):
        assert head in " ".join(text.split())  # every head is explained
    assert render(frame, "markdown").startswith("| Adversary | Rounds |")
    assert render(frame, "csv").splitlines()[0].startswith("label,selection,aggregation,server,clients")
    with pytest.raises(ExperimentError, match="--format latex: unknown"):
        render(frame, "latex")
    with pytest.raises(ExperimentError, match=naming("adversary:")):
        adversaries(runs[1:])
    for eta in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ExperimentError, match=f"--eta {eta:g}: must be above 0 and finite"):
            adversaries(runs, eta=eta)
    (row, _) = json.loads(render(adversaries([runs[0], runs[0]], eta=1e308), "json"))["rows"]
    assert (row["exceeded"], row["bound"]) == (0, 0.0)


@pytest.mark.parametrize("eta", ["nan", "inf", "-inf", "0", "1e999"])
def test_an_eta_that_is_no_factor_is_one_line(recorded: Callable, capsys: pytest.CaptureFixture[str], eta: str) -> None:
    from testbed.cli import main

    run = recorded("once", {"dishonest": 0.3, "server": ["list-twice"]})
    capsys.readouterr()
    assert main(["attack", "summary", str(run.path), "--eta", eta]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", f"error: --eta {float(eta):g}: must be above 0 and finite\n")


def test_runs_of_an_earlier_version_have_no_dishonest_participants(recorded: Callable) -> None:
    run = recorded("old", None)
    path = run.path / "participation.parquet"
    metadata = pq.read_schema(path).metadata
    table = pq.read_table(path).drop_columns(["dishonest"]).replace_schema_metadata(metadata)
    pq.write_table(table, path)
    old = RunRecords(run.path).participation
    assert len(old) > 0
    assert old["dishonest"].dtype == bool
    assert not old["dishonest"].any()


@pytest.mark.parametrize(
    ("count", "trials", "low", "high"), [(0, 10, 0, 0.3085), (10, 10, 0.6915, 1), (5, 20, 0.0866, 0.4910)]
)
def test_intervals_are_clopper_and_pearsons(count: int, trials: int, low: float, high: float) -> None:
    """Published values of the exact interval (Brown, Cai and DasGupta 2001, and textbooks)."""
    share = Proportion.of(count, trials)
    assert (share.low, share.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def test_nothing_is_known_without_trials() -> None:
    assert (Proportion.of(0, 0).low, Proportion.of(0, 0).high) == (0, 1)
