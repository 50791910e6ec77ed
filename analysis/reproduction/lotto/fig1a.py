"""Lotto's Figure 1a: attack on secure aggregation by x dishonest participants, and the frequency of so large an x.

Jiang et al., arXiv 2401.02880, section 2.3 and Corollary 1.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis.bounds.lotto import candidates_suffice, secagg_fails
from analysis.bounds.lotto_completed import exceeds_and_completed
from analysis.reproduction.contract import (
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from analysis.reproduction.experiments import declared
from analysis.reproduction.lotto.fig1a_figures import LOOKS, SHRUNK, SIGNED, SPLIT, UNSIGNED, draw_rates, draw_steps
from analysis.reproduction.verdicts import PaperClaim, equal, true
from analysis.statistics import Proportion
from testbed.experiment.schema import Experiment
from testbed.records import RunRecords

PARTICIPANTS, OVER_SELECTION = 10, 1.3
POPULATION = 100
STEP_PARTICIPANTS = 20
_CHOOSES = {
    "random": {"prefer-dishonest": {"honest": 1}},
    "lotto-client-centric": "keep-dishonest-candidates",
    "lotto-server-centric": "keep-dishonest-candidates",
}


class ReconstructionScale(NamedTuple):
    """Number of settings and rounds."""

    thresholds: Sequence[int]  # t of the first figure's 20 participants: signed survivors; above 13 also unsigned
    settings: Sequence[tuple[int, int]]  # (c, t) of the second, of 100 clients and 10 participants
    rounds: int  # of each setting under Lotto
    random_rounds: int  # of each setting with a server that chooses freely, which is deterministic


_SETTINGS = ((20, 6), (20, 7), (20, 8), (10, 7), (10, 9))
SCALES = {
    "small": ReconstructionScale((11, 14, 17), _SETTINGS, 100, 20),
    "paper": ReconstructionScale((11, 14, 17), _SETTINGS, 3000, 100),
}


def experiment(
    population: int,
    participants: int,
    selection: str,
    attacks: Sequence[Any],
    aggregation: Mapping[str, Any],
    dishonest: int,
    rounds: int,
    seed: int,
) -> Experiment:
    """Return one point: the cheapest training, under a malicious server.

    Args:
        population: n.
        participants: s.
        selection: selection protocol.
        attacks: misbehaviours of the server.
        aggregation: keys of the section `aggregation`, with the threshold.
        dishonest: number of dishonest clients.
        rounds: number of rounds.
        seed: seed of the experiment.
    """
    return declared(
        f"{selection}, {dishonest} dishonest, t = {aggregation['threshold']}",
        """
        workload: {dataset: digits, model: logistic, batch_size: 32}
        aggregation: {protocol: secagg}
        cluster: {network: in-process}
        """,
        {
            "seed": seed,
            "rounds": rounds,
            "population": population,
            "workload.evaluate_every": rounds,
            "selection": {"protocol": selection, "participants": participants},
            "aggregation": aggregation,
            "adversary": {"dishonest": dishonest, "server": list(attacks)},
        },
    )


def sums_had(run: RunRecords) -> list[int]:
    """Return the number of honest updates in the server's smallest sum for each attacked round; 1 is a victim's."""
    attacks = run.events.loc[run.events["kind"] == "attack", "detail"]
    smallest = []
    for detail in attacks[attacks.str.startswith(("contradict-dropouts: ", "shrink-the-sum: ", "split-the-sharing: "))]:
        if "; reconstructed, " in detail:
            over = re.search(r": sum over (\d+) of ", detail)
            smallest.append(1 if over is None else int(over[1]))
        else:
            smallest.append(0)
    return smallest


# -- at which x ------------------------------------------------------------------------------------------------------


def steps(context: ReproductionContext, scale: ReconstructionScale) -> pd.DataFrame:
    """Return the honest updates in the smallest sum when everybody takes part.

    Args:
        context: where and how to run.
        scale: thresholds to run.

    Returns:
        One row for each consistency, attack, t and x.
    """
    s, rows = STEP_PARTICIPANTS, []
    for t in scale.thresholds:
        for consistency, attack in (SIGNED, UNSIGNED, SHRUNK, SPLIT):
            if consistency == "none" and 3 * t <= 2 * s:
                continue  # neither server nor clients begin
            context.progress(f"s = {s}, t = {t}, consistency {consistency}, {attack}, x = 0 to {s - 2}")
            aggregation = {"threshold": t, "consistency": consistency}
            point = experiment(s, s, "random", [attack], aggregation, 0, 1, t)
            swept = point.model_copy(update={"sweep": {"adversary.dishonest": list(range(s - 1))}})
            for x, run in enumerate(context.run_experiment(swept, context.out / f"steps-{t}-{consistency}-{attack}")):
                had = sums_had(run)[0]
                refused = int((run.events["kind"] == "refusal").sum())
                rows.append((consistency, attack, t, x, had, s - x if had == 0 else had, refused))
    columns = ["consistency", "attack", "t", "x", "had", "smallest", "refused"]
    return pd.DataFrame(rows, columns=columns)


def _first(frame: pd.DataFrame, kind: tuple[str, str], t: int) -> tuple[int, bool]:
    """Return the least x with a victim's update, and whether every greater x has one, too."""
    chosen = frame[(frame["consistency"] == kind[0]) & (frame["attack"] == kind[1]) & (frame["t"] == t)]
    alone = chosen.sort_values("x")["had"].to_numpy() == 1
    first = int(np.argmax(alone)) if alone.any() else len(alone)
    return first, bool(alone[first:].all())


# -- how often x is large enough -----------------------------------------------------------------------------------


def chance(dishonest: int, threshold: int) -> float:
    """Return Pr[|C| >= s and x >= 2t - s] exactly, for a server that keeps all dishonest candidates and the true n.

    Args:
        dishonest: number of dishonest clients.
        threshold: t.
    """
    fewest, most = 2 * threshold - PARTICIPANTS, PARTICIPANTS - 1  # one place is a victim's
    setting = (POPULATION, dishonest, PARTICIPANTS, OVER_SELECTION, POPULATION)
    return exceeds_and_completed(fewest - 1, *setting, largest=most)


def rates(context: ReproductionContext, scale: ReconstructionScale) -> pd.DataFrame:
    """Return how often a victim's update was reconstructed, beside Corollary 1.

    Args:
        context: where and how to run.
        scale: settings and rounds.

    Returns:
        One row for each selection, c and t.
    """
    rows, enough = [], candidates_suffice(POPULATION, PARTICIPANTS, OVER_SELECTION)
    for seed, (dishonest, t) in enumerate(scale.settings, 1):
        for selection, chooses in _CHOOSES.items():
            rounds = scale.random_rounds if selection == "random" else scale.rounds
            context.progress(f"{selection}, n = {POPULATION}, c = {dishonest}, t = {t}: {rounds} rounds")
            point = experiment(
                POPULATION,
                PARTICIPANTS,
                selection,
                [chooses, "contradict-dropouts"],
                {"threshold": t},
                dishonest,
                rounds,
                seed,
            )
            (run,) = context.run_experiment(point, context.out / f"rates-{selection}-{dishonest}-{t}")
            lotto = selection != "random"
            exact = chance(dishonest, t)
            rows.append(
                {
                    "selection": selection,
                    "c": dishonest,
                    "t": t,
                    "seed": seed,
                    "rounds": len(run.rounds),
                    "completed": int((run.rounds["outcome"] == "completed").sum()),
                    "reconstructed": sums_had(run).count(1),
                    "exact": exact if lotto else 1.0,
                    "exact, completed": exact / enough if lotto else 1.0,
                    "Corollary 1": secagg_fails(dishonest, PARTICIPANTS, OVER_SELECTION, POPULATION, t)
                    if lotto
                    else None,
                }
            )
    return pd.DataFrame(rows)


# -- together --------------------------------------------------------------------------------------------------------


def measure_fig1a(context: ReproductionContext) -> Measurements:
    """Run the attacks at the context's scale."""
    scale = SCALES[context.scale]
    reached, counts = steps(context, scale), rates(context, scale)
    figures = [
        *draw_steps(reached, STEP_PARTICIPANTS, context.out / "lotto-fig1a-steps"),
        *draw_rates(_with_intervals(counts), context.out / "lotto-fig1a-rates"),
    ]
    setting = Setting(
        "none",
        seeds=tuple(sorted({int(seed) for seed in counts["seed"]})),
        sizes={
            "population": POPULATION,
            "participants": PARTICIPANTS,
            "over-selection": OVER_SELECTION,
            "participants of the steps": STEP_PARTICIPANTS,
        },
        differs=["the paper's figure states no sizes"],
    )
    return Measurements(setting, {"steps": reached, "rates": counts}, figures)


def _with_intervals(counts: pd.DataFrame) -> pd.DataFrame:
    """Return the rates with their intervals: over announced rounds, and over completed ones."""
    rows = []
    for _, row in counts.iterrows():
        share = Proportion.of(int(row["reconstructed"]), int(row["rounds"]))
        completed = Proportion.of(int(row["reconstructed"]), int(row["completed"]))
        rows.append(
            {
                **{name: row[name] for name in ("selection", "c", "t", "rounds", "reconstructed")},
                "rate": share.rate,
                "95% low": share.low,
                "95% high": share.high,
                "exact": row["exact"],
                "Corollary 1 (paper)": row["Corollary 1"],
                "completed": row["completed"],
                "rate of completed": completed.rate,
                "exact of completed": row["exact, completed"],
            }
        )
    return pd.DataFrame(rows)


def conclude_fig1a(measurements: Measurements) -> ReproductionResult:
    """Compare the attacks with sections 2.3 and 3.4."""
    reached, table = measurements.tables["steps"], _with_intervals(measurements.tables["rates"])
    claims = [_step_claim(reached, int(measurements.setting.sizes["participants of the steps"])), *_rate_claims(table)]
    return ReproductionResult(table, claims=claims, remarks=remarks(reached, table))


def _step_claim(reached: pd.DataFrame, s: int) -> PaperClaim:
    signed = {t: _first(reached, SIGNED, t) for t in sorted(set(reached["t"]))}
    return PaperClaim(
        "With x >= 2t - s dishonest participants the server sees a participant's update (Figure 1a)",
        f"s = {s}: from x = {', '.join(f'{first[0]} at t = {t}' for t, first in signed.items())} on the update was "
        "reconstructed, at no smaller x",
        [
            *(equal(f"t = {t}: least x", first[0], 2 * t - s) for t, first in signed.items()),
            true("at every greater x, too", all(onwards for _, onwards in signed.values())),
        ],
        uses_data=False,
    )


def _rate_claims(table: pd.DataFrame) -> list[PaperClaim]:
    at_random, lotto = table[table["selection"] == "random"], table[table["selection"] != "random"]
    beyond = sum(_beyond(row, len(lotto)) for _, row in lotto.iterrows())
    total, had = int(at_random["rounds"].sum()), int(at_random["reconstructed"].sum())
    return [
        PaperClaim(
            "A server that selects as it likes makes SecAgg fail with probability 1",
            f"{had} of {total} rounds",
            [equal("share of the rounds", had / total, 1)],
            seeds=total,
            uses_data=False,
        ),
        PaperClaim(
            "Under Lotto SecAgg fails with at most the probability of Corollary 1, for each announced round",
            "; ".join(
                f"c = {c}, t = {t}: {int(rows['reconstructed'].sum())} of {int(rows['rounds'].sum())} rounds "
                f"(bound {rows['Corollary 1 (paper)'].iloc[0]:.2g})"
                for (c, t), rows in lotto.groupby(["c", "t"], sort=False)
            ),
            [equal("rates above the bound (intervals of 95% for all together)", beyond, 0)],
            seeds=int(lotto["rounds"].min()),
            uses_data=False,
        ),
    ]


def _beyond(row: pd.Series, rates: int) -> bool:
    """Check whether a rate's interval lies above the bound; the intervals of all rates hold together with 95%."""
    wide = Proportion.of(int(row["reconstructed"]), int(row["rounds"]), 1 - 0.05 / rates)  # Bonferroni
    return wide.low > float(row["Corollary 1 (paper)"])


def remarks(reached: pd.DataFrame, table: pd.DataFrame) -> list[str]:
    """Return the differences from the paper, and the limits of this reproduction.

    Args:
        reached: as `steps` makes it.
        table: rates with intervals.
    """
    lotto = table[table["selection"] != "random"]
    inside = int(((lotto["95% low"] <= lotto["exact"]) & (lotto["exact"] <= lotto["95% high"])).sum())
    above = int((lotto["exact of completed"] > lotto["Corollary 1 (paper)"]).sum())
    thresholds = []
    for t in sorted(set(reached.loc[reached["consistency"] == "none", "t"])):
        firsts = [f"{attack} from x = {_first(reached, ('none', attack), t)[0]}" for _, attack in list(LOOKS)[1:]]
        thresholds.append(f"t = {t}: {', '.join(firsts)}")
    noticed = reached[(reached["had"] == 1) & (reached["refused"] > 0)]
    return [
        "Without signed survivors (not in the paper) one victim's update was reconstructed with fewer dishonest "
        f"participants: {'; '.join(thresholds)}.",
        f"Honest clients refused a message in {len(noticed)} of the {int((reached['had'] == 1).sum())} runs in which "
        "a victim's update was reconstructed.",
        "Reconstructed: masks removed, with a result that one update can have (weight, highest level, multiples of "
        "the weight). The tests compare the result with the victim's quantised update, bit for bit.",
        "The server keeps every dishonest candidate under Lotto, and fills all places but one with dishonest clients "
        "if it may choose. The workload is logistic regression on the digits: the attack does not depend on it. "
        f"exact: the chance that enough candidates, and 2t - s dishonest ones, occur; {inside} of {len(lotto)} rates "
        "under Lotto have it in their 95% interval.",
        "Corollary 1 is a bound for announced rounds. For completed rounds the exact chance is larger by 1 / Pr[|C| >= "
        f"s]; in {above} of {len(lotto)} rows it is above the printed bound.",
    ]


REPRODUCTIONS = (
    Reproduction(
        "lotto-fig1a",
        "A victim's update under SecAgg with x dishonest participants, and how often that many occur under Lotto",
        "Jiang et al., Lotto, arXiv 2401.02880, Figure 1a and Corollary 1",
        measure=measure_fig1a,
        conclude=conclude_fig1a,
    ),
)
