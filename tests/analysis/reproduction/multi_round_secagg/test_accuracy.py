"""Multi-RoundSecAgg's accuracies at a tiny scale: real runs, and claims on made-up accuracies."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.reproduction.catalogue import named
from analysis.reproduction.contract import Reproduction, ReproductionContext
from analysis.reproduction.measurements import carry_out
from analysis.reproduction.multi_round_secagg import accuracy, tasks
from analysis.reproduction.multi_round_secagg.accuracy_claims import (
    ablation_claims,
    claims,
    levels,
    printed_cells,
    rate_claim,
    reason_of,
    rounds_to,
)
from analysis.reproduction.multi_round_secagg.published import (
    LEARNING_RATES,
    PARTITION,
    RANDOM,
    SCHEMES,
    STORED_4,
    STORED_5,
    STORED_9,
    T3,
    T4,
    T6,
    TABLE_3,
    TABLE_4,
    TABLE_5,
    WEIGHTED,
    Accuracies,
    Setting,
    comparable_margin,
)  # fmt: skip
from analysis.reproduction.multi_round_secagg.tasks import DIGITS, TASKS, Task, Tasks, scales_of, task_of
from analysis.reproduction.multi_round_secagg.training import (
    Results,
    TrainedRun,
    dropout_probabilities,
    experiment,
    train,
)
from analysis.reproduction.training_runs import AccuracyCurves
from analysis.reproduction.verdicts import PaperClaim
from testbed.errors import ExperimentError
from testbed.experiment.schema import points
from testbed.records import RunRecords

TINY = replace(
    DIGITS, workload={"dataset": "digits", "model": "logistic", "batch_size": 20}, population=60, participants=12,
    rounds=6, seeds=2, evaluations=3,
)  # fmt: skip


def _reproduction(name: str) -> Reproduction:
    (found,) = [one for one in accuracy.REPRODUCTIONS if name in (one.name, *one.aliases)]
    return found


# -- runs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TASKS)
def test_experiments_of_every_task_validate(name: str) -> None:
    for task in TASKS[name].every:
        if task.workload["dataset"] in ("mnist", "cifar10", "cifar100"):
            task = replace(task, workload={**task.workload, "path": "data"})
        for setting in task.settings:
            swept = experiment(task, setting, 1, list(SCHEMES.values()), task.rates)
            assert len(list(points(swept, name))) == len(SCHEMES) * len(task.rates)


def test_every_task_keeps_the_papers_users_and_seeds() -> None:
    for each in TASKS.values():
        assert {(task.population, task.participants) for task in each.every} == {(120, 12)}
        assert {task.seeds for task in each.every if task is not each.real} == {5}
    assert all(each.paper.rates == LEARNING_RATES for each in TASKS.values())


def test_scale_real_has_the_papers_data_model_and_batches() -> None:
    assert [name for name in TASKS if "real" in scales_of(name)] == [
        "multiround-fig7", "multiround-fig8", "multiround-fig9",
    ]  # fmt: skip
    for each in TASKS.values():
        if each.real is not None:
            assert each.real.workload == each.paper.workload
            assert each.real.settings == each.paper.settings
            assert each.real.rounds < each.paper.rounds
            assert "Left out" in " ".join(each.real.notes)


def test_with_the_training_files_small_has_the_papers_clients(tmp_path: Path) -> None:
    alone = task_of("multiround-fig7", "small", tmp_path)
    (tmp_path / "train-images-idx3-ubyte.gz").touch()
    assert (alone.workload["batch_size"], task_of("multiround-fig7", "small", tmp_path).workload["batch_size"]) == (
        14, 100,
    )  # fmt: skip


def test_the_papers_tables_have_all_schemes() -> None:
    for table in (TABLE_3, TABLE_4, TABLE_5):
        assert list(table) == list(SCHEMES)
        assert all(row.iid > row.non_iid for row in table.values())


def test_the_papers_scale_needs_the_papers_data() -> None:
    with pytest.raises(ExperimentError, match="--data DIR") as raised:
        task_of("multiround-fig7", "paper", None)
    assert "\n" not in str(raised.value)
    assert task_of("multiround-fig7", "paper", Path("there")).workload["path"] == "there"


def test_a_table_and_its_figure_are_one_reproduction() -> None:
    for figure, table in (("5", "3"), ("7", "5"), ("8", "4")):
        assert named([f"multiround-table{table}", f"multiround-fig{figure}"]) == [
            _reproduction(f"multiround-fig{figure}")
        ]


def test_dropouts_are_drawn_by_seed_from_the_papers_values() -> None:
    drawn = dropout_probabilities(1000, 1)
    assert set(drawn) == {0.1, 0.2, 0.3, 0.4, 0.5}
    assert drawn == dropout_probabilities(1000, 1)
    assert drawn != dropout_probabilities(1000, 2)
    assert min(drawn.count(p) for p in set(drawn)) > 150


# -- through the runs -----------------------------------------------------------------------------------------------


def test_schemes_of_a_seed_have_data_model_and_absences_in_common(context: ReproductionContext) -> None:
    swept = experiment(TINY, "non-IID", 3, [SCHEMES[RANDOM], SCHEMES[T3]], [0.1])
    one, other = context.run_experiment(swept, context.out / "runs")

    def absent(run: RunRecords) -> set[tuple[int, int]]:
        asked = run.exchanges[run.exchanges["stage"] == "check-in"]
        away = asked[asked["outcome"] == "offline"]
        return set(zip(away["round"], away["client"], strict=True))

    assert absent(one)
    assert absent(one) == absent(other)


def test_table_5_tiny(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    task = replace(TINY, settings={"non-IID": TINY.settings["non-IID"]})
    monkeypatch.setitem(tasks.TASKS, "multiround-fig7", Tasks(task, task, task))
    measurements, result = carry_out(_reproduction("multiround-table5"), replace(context, seeds=1))
    assert measurements is not None
    assert (measurements.setting.data_kind, list(measurements.setting.seeds)) == ("stand-in", [1])
    assert len(measurements.tables["evaluations"]) == 6 * 3
    table = result.table.set_index("scheme")
    assert list(table.index) == list(SCHEMES)
    assert table.loc[T4, "non-IID % (paper)"] == 92.51
    assert (table.drop(PARTITION)["non-IID %"] > 10).all()  # ten classes
    assert int(table.loc[T3, "non-IID T strong"]) >= 3
    assert int(table.loc[T6, "non-IID T strong"]) >= 6
    assert table.loc[RANDOM, "non-IID C"] == 12
    assert table.loc[T6, "non-IID skipped %"] >= table.loc[T3, "non-IID skipped %"]
    assert (table["worst label %"] <= table["non-IID %"]).all()
    assert (table["non-IID F completed"] >= table["non-IID F"]).all()
    assert len(result.claims) == 6
    assert (result.claims[-1].verdict, result.claims[-1].not_run) == ("not run", "data")
    assert {claim.seeds for claim in result.claims} == {1}
    assert any("least sum of participations" in remark for remark in result.remarks)
    assert [path.name for path in result.figures] == [f"multiround-fig7.{kind}" for kind in ("png", "pdf", "csv")]
    assert all(path.stat().st_size for path in result.figures)
    assert "digits" in result.remarks[0]


def test_the_better_of_two_learning_rates_is_taken(context: ReproductionContext) -> None:
    task = replace(TINY, settings={"IID": TINY.settings["IID"]}, rates=(1e-6, 0.1), seeds=1, rounds=5)
    runs, evaluations, rates = train(context, task)
    assert rates == [0.1]
    assert set(runs["setting"]) == set(evaluations["setting"]) == {"IID"}


def test_figure_9_tiny(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    task = replace(TINY, settings={"IID": TINY.settings["IID"]}, by_label=False, rounds=2, seeds=1)
    monkeypatch.setitem(tasks.TASKS, "multiround-fig9", Tasks(task, task, task))
    monkeypatch.setattr(accuracy, "ABLATION_PANELS", {(24, 12): "a", (48, 24): "b"})
    _, result = carry_out(_reproduction("multiround-fig9"), context)
    assert result.table["N, K"].tolist() == ["24, 12"] * 6 + ["48, 24"] * 6
    assert not [name for name in result.table if "(paper)" in name]
    assert len(result.claims) == 7
    assert result.claims[-1].claim.startswith("partition fails to train")


# -- claims ---------------------------------------------------------------------------------------------------------

NOISE = np.array([-0.2, 0.1, 0.0, 0.2, -0.1])
AS_PUBLISHED = {scheme: row.non_iid for scheme, row in TABLE_5.items()}


def _judged(setting: Setting, means: dict[str, float], **spread: float) -> dict[str, str]:
    """By claim, of five seeds that differ by little, in the named schemes by more."""
    late = {
        scheme: mean + (1 + spread.get(scheme.replace("-", "_").replace(" = ", ""), 0.0)) * np.roll(NOISE, place)
        for place, (scheme, mean) in enumerate(means.items())
    }
    found: list[PaperClaim] = claims({setting: late})
    return {claim.claim: claim.verdict for claim in found}


def _of(judged: dict[str, str], words: str) -> str:
    (found,) = [verdict for claim, verdict in judged.items() if words in claim]
    return found


def test_the_papers_own_numbers_agree_with_its_claims() -> None:
    for table in (TABLE_3, TABLE_4, TABLE_5):
        late = {
            setting: {scheme: row.of(setting) + np.roll(NOISE, i) for i, (scheme, row) in enumerate(table.items())}
            for setting in ("IID", "non-IID")
        }
        assert {claim.verdict for claim in claims(late)} == {"agrees"}


def test_a_scheme_below_partition_disagrees() -> None:
    assert _of(_judged("non-IID", AS_PUBLISHED), "partition is worst") == "agrees"
    assert _of(_judged("non-IID", AS_PUBLISHED | {T6: 70.0}), "partition is worst") == "partly"
    assert (
        _of(_judged("non-IID", dict.fromkeys(SCHEMES, 80.0) | {PARTITION: 90.0}), "partition is worst") == "disagrees"
    )


def test_a_gap_that_may_be_chance_is_only_partly_a_gap() -> None:
    means = AS_PUBLISHED | {RANDOM: 93.0, T4: 93.6}
    clear, vague = _judged("non-IID", means), _judged("non-IID", means, random=20.0)
    assert _of(clear, "T = 3 and T = 4 are better than random") == "agrees"
    assert _of(vague, "T = 3 and T = 4 are better than random") == "partly"
    below = _judged("non-IID", means | {T3: 90.0, T4: 90.0, WEIGHTED: 90.0})
    assert _of(below, "T = 3 and T = 4 are better than random") == "disagrees"
    assert _of(below, "weighted random is better than random") == "disagrees"


def test_comparable_is_within_the_papers_margin() -> None:
    level = dict.fromkeys(SCHEMES, 90.0) | {PARTITION: 70.0}
    assert _of(_judged("IID", level), "comparable to weighted random") == "agrees"
    assert _of(_judged("IID", level | {T3: 91.0, T4: 89.0}), "comparable to random") == "agrees"
    assert _of(_judged("IID", level | {T3: 80.0}), "comparable to random") == "partly"  # T = 4 is
    assert _of(_judged("IID", level | {T3: 80.0, T4: 80.0}), "comparable to random") == "disagrees"


def test_near_100_percent_fewer_points_are_comparable() -> None:
    assert comparable_margin(50.0) == 2.0
    assert comparable_margin(97.0) == pytest.approx(3 * 2 / 5.96)
    high = dict.fromkeys(SCHEMES, 97.0) | {PARTITION: 70.0}
    assert _of(_judged("IID", high), "comparable to random") == "agrees"
    assert _of(_judged("IID", high | {T3: 95.5, T4: 95.5}), "comparable to random") == "disagrees"


# -- levels and rates -----------------------------------------------------------------------------------------------


def _run(last: float, middle: float = 40.0, cardinality: float = 12.0) -> TrainedRun:
    accuracy = np.array([[10.0, middle, last]]) + NOISE[:, None]
    nothing = np.zeros(5)
    curves = AccuracyCurves(np.array([0, 50, 100]), accuracy, 100)
    return TrainedRun(curves, np.zeros(5), 1, True, 1, nothing, nothing, np.full(5, cardinality), nothing)


def test_levels_are_judged_where_data_model_and_rounds_are_the_papers() -> None:
    published = {scheme: Accuracies(60.0, 50.0) for scheme in SCHEMES}
    for last, verdict in ((61.0, "agrees"), (66.0, "disagrees")):
        results: Results = {"IID": {scheme: _run(last) for scheme in SCHEMES}}
        assert levels(results, published, "").verdict == verdict
        assert (levels(results, published, "length").verdict, levels(results, published, "data").not_run) == (
            "not run", "data",
        )  # fmt: skip
    assert (reason_of("paper", True), reason_of("paper", False), reason_of("stand-in", True)) == ("", "length", "data")


def test_printed_accuracies_are_compared_with_the_stored_ones() -> None:
    assert printed_cells(TABLE_5, STORED_5).startswith("3 of 12 ")
    assert printed_cells(TABLE_4, STORED_4).startswith("4 of 12 ")
    assert printed_cells(TABLE_5, TABLE_5).startswith("0 of 12 ")
    assert all(row[PARTITION] == min(row.values()) for row in STORED_9.values())


def test_rounds_to_an_accuracy_are_interpolated() -> None:
    curves = AccuracyCurves(np.array([10, 20, 30]), np.array([[10.0, 30.0, 20.0], [50.0, 60.0, 70.0]]), 30)
    assert rounds_to(curves, 20.0).tolist() == [15.0, 10.0]
    assert np.isnan(rounds_to(curves, 40.0)[0])


def test_rounds_in_proportion_to_the_cardinality_agree() -> None:
    random, slow = _run(60.0), _run(41.0, middle=25.0, cardinality=6.0)
    schemes = dict.fromkeys(SCHEMES, random)
    assert rate_claim(schemes, "IID").verdict == "agrees"
    assert rate_claim({**schemes, T6: slow}, "IID").verdict == "agrees"
    assert rate_claim({**schemes, T6: replace(slow, cardinality=random.cardinality)}, "IID").verdict == "partly"
    never = rate_claim({**schemes, T6: _run(20.0, middle=15.0)}, "IID")
    assert (never.verdict, never.not_run) == ("not run", "censored")


def _trained(skipped: int, total: int = 100) -> TrainedRun:
    accuracy = 50 + np.tile(NOISE[:, None], (1, 4))
    nothing = np.zeros(5)
    curves = AccuracyCurves(np.array([25, 50, 75, 100]), accuracy, total)
    return TrainedRun(curves, np.full(5, skipped), 24, True, 24, nothing, nothing, nothing, np.full(5, 50.0))


def test_partition_fails_to_train_when_hardly_any_round_has_a_sum() -> None:
    def last(participants: int, skipped: int) -> PaperClaim:
        schemes = {scheme: _trained(0) for scheme in SCHEMES} | {PARTITION: _trained(skipped)}
        return ablation_claims(120, participants, schemes)[-1]

    assert last(24, 99).verdict == "agrees"
    assert last(24, 60).verdict == "disagrees"
    assert "fails" not in last(12, 99).claim


def test_the_accuracy_at_the_end_is_of_the_last_tenth() -> None:
    curves = _trained(0).curves
    rising = replace(curves, rounds=np.array([50, 90, 91, 100]), accuracy=np.array([[0.0, 10.0, 60.0, 80.0]]))
    assert rising.late.tolist() == [70.0]


def test_a_task_evaluates_at_least_every_round() -> None:
    assert Task({}, {}, rounds=10, rates=(0.1,)).evaluate_every == 1
