"""Lotto's Figure 1a: attack on secure aggregation by x dishonest participants, and the frequency of so large an x.

Jiang et al., arXiv 2401.02880, section 2.3 and Corollary 1.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from scipy.stats import binom

from analysis.bounds.lotto import secagg_fails
from analysis.plot_data import plot_data
from analysis.reproduction.contract import Reproduction, ReproductionContext, ReproductionResult
from analysis.reproduction.experiments import declared
from analysis.reproduction.verdicts import PaperClaim, equal, true
from analysis.statistics import Proportion
from analysis.style import COLUMN_INCHES, PAGE_INCHES, house_style, protocol_colours, save
from testbed.experiment.schema import Experiment
from testbed.records import RunRecords

PARTICIPANTS, OVER_SELECTION = 10, 1.3
POPULATION = 100
STEP_PARTICIPANTS = 20
SIGNED, SHRUNK, SPLIT = ("signed", "contradict-dropouts"), ("none", "shrink-the-sum"), ("none", "split-the-sharing")
UNSIGNED = ("none", "contradict-dropouts")
_LOOKS = {SIGNED: ("#000000", "o"), UNSIGNED: ("#7F7F7F", "x"), SHRUNK: ("#0072B2", "s"), SPLIT: ("#D55E00", "^")}
_CHOOSES = {
    "random": {"prefer-dishonest": {"honest": 1}},
    "lotto-client-centric": "keep-dishonest-candidates",
    "lotto-server-centric": "keep-dishonest-candidates",
}

_NAMES = {"random": "random, of the server's choice"}


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
    first = int(np.argmax(alone)) if alone.any() else STEP_PARTICIPANTS
    return first, bool(alone[first:].all())


def _draw_steps(frame: pd.DataFrame, path: Path) -> list[Path]:
    s, thresholds = STEP_PARTICIPANTS, sorted(set(frame["t"]))
    with house_style():
        figure, panels = plt.subplots(1, len(thresholds), figsize=(PAGE_INCHES, 2.1), sharey=True)
        for axes, t in zip(np.atleast_1d(panels), thresholds, strict=True):
            for (consistency, attack), (colour, marker) in _LOOKS.items():
                rows = frame[(frame["consistency"] == consistency) & (frame["attack"] == attack) & (frame["t"] == t)]
                if len(rows):
                    look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 3, "linewidth": 0.8}
                    label = f"{consistency}; {attack}"
                    axes.plot(rows["x"], rows["smallest"], label=label, clip_on=False, **look)
            axes.axvline(2 * t - s, color="#7F7F7F", linestyle=":", linewidth=0.9)
            axes.text(2 * t - s + 0.3, 1.01 * s, f"2t − s = {2 * t - s}", fontsize=6.5, va="bottom", ha="center")
            axes.set_title(f"t = {t}" + ("" if 3 * t > 2 * s else " (none: refused)"), pad=12)
            axes.set_yticks([1, 5, 10, 15, 20])
            axes.set_ylim(0, s)
            axes.grid(axis="y")
        np.atleast_1d(panels)[0].set_ylabel("honest updates in\nthe smallest sum had")
        handles, labels = np.atleast_1d(panels)[-1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper center", ncols=4, bbox_to_anchor=(0.5, -0.02))
        figure.supxlabel(f"dishonest among {s} participants (x)", fontsize=7.5, y=0.0)
        figure.tight_layout()
        files = save(figure, path, plot_data(figure))
        plt.close(figure)
    return files


# -- how often x is large enough -----------------------------------------------------------------------------------


def chance(dishonest: int, threshold: int) -> float:
    """Return Pr[|C| >= s and x >= 2t - s] exactly, for a server that keeps all dishonest candidates and the true n.

    Args:
        dishonest: number of dishonest clients.
        threshold: t.
    """
    p = OVER_SELECTION * PARTICIPANTS / POPULATION
    honest = POPULATION - dishonest
    x = np.arange(2 * threshold - PARTICIPANTS, min(dishonest, PARTICIPANTS - 1) + 1)  # one place is a victim's
    return float((binom.pmf(x, dishonest, p) * binom.sf(PARTICIPANTS - x - 1, honest, p)).sum())


def rates(context: ReproductionContext, scale: ReconstructionScale) -> pd.DataFrame:
    """Return how often a victim's update was reconstructed, beside Corollary 1.

    Args:
        context: where and how to run.
        scale: settings and rounds.

    Returns:
        One row for each selection, c and t.
    """
    rows = []
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
            # Rounds without enough candidates count, too.
            share = Proportion.of(sums_had(run).count(1), len(run.rounds))
            bound = secagg_fails(dishonest, PARTICIPANTS, OVER_SELECTION, POPULATION, t)
            lotto = selection != "random"
            rows.append(
                {
                    "selection": selection,
                    "c": dishonest,
                    "t": t,
                    "rounds": share.trials,
                    "reconstructed": share.count,
                    "rate": share.rate,
                    "95% low": share.low,
                    "95% high": share.high,
                    "exact": chance(dishonest, t) if lotto else 1.0,
                    "Corollary 1 (paper)": bound if lotto else float("nan"),
                }
            )
    return pd.DataFrame(rows)


def _draw_rates(frame: pd.DataFrame, path: Path) -> list[Path]:
    settings = list(dict.fromkeys(zip(frame["c"], frame["t"], strict=True)))
    selections = list(_CHOOSES)
    colours = protocol_colours(selections)
    with house_style():
        figure, axes = plt.subplots(figsize=(COLUMN_INCHES, 2.4))
        for place, selection in enumerate(selections):
            rows = frame[frame["selection"] == selection].set_index(["c", "t"])
            for at, setting in enumerate(settings):
                label = _NAMES.get(selection, selection) if at == 0 else None
                _point(axes, at + 0.2 * (place - 1), rows.loc[setting], colours[selection], "osD"[place], label)
        for at, (c, t) in enumerate(settings):
            bound = secagg_fails(c, PARTICIPANTS, OVER_SELECTION, POPULATION, t)
            axes.plot([at - 0.1, at + 0.4], [bound, bound], color="#7F7F7F", label="Corollary 1" if at == 0 else None)
        axes.set_yscale("log")
        axes.set_ylim(1e-6, 2)
        axes.set_xticks(range(len(settings)), [f"c = {c}\nt = {t}" for c, t in settings])
        axes.set_ylabel("rounds in which a victim's\nupdate was reconstructed")
        axes.grid(axis="y")
        axes.legend(loc="upper center", ncols=2, bbox_to_anchor=(0.42, -0.18))
        files = save(figure, path, plot_data(figure))
        plt.close(figure)
    return files


def _point(axes: Axes, x: float, row: Any, colour: str, marker: str, label: str | None) -> None:
    """Draw a rate and its interval; without any reconstruction, draw the interval's end with an arrow down."""
    look: dict[str, Any] = {"color": colour, "markersize": 3.5, "linewidth": 0.9, "label": label}
    if row["reconstructed"]:
        reach = [[row["rate"] - row["95% low"]], [row["95% high"] - row["rate"]]]
        axes.errorbar([x], [row["rate"]], reach, marker=marker, linestyle="", **look)
        return
    high = row["95% high"]
    axes.plot([x], [high], marker="v", linestyle="", **look)
    axes.plot([x, x], [high / 10, high], color=colour, linewidth=0.9, linestyle=":")


# -- together --------------------------------------------------------------------------------------------------------


def run_fig1a(context: ReproductionContext) -> ReproductionResult:
    """Run the attacks at the context's scale."""
    scale = SCALES[context.scale]
    reached, table = steps(context, scale), rates(context, scale)
    figures = [
        *_draw_steps(reached, context.out / "lotto-fig1a-steps"),
        *_draw_rates(table, context.out / "lotto-fig1a-rates"),
    ]
    return ReproductionResult(table, figures, claims(reached, table), remarks(reached))


def claims(reached: pd.DataFrame, table: pd.DataFrame) -> list[PaperClaim]:
    """Return the claims of sections 2.3 and 3.4.

    Args:
        reached: as `steps` makes it.
        table: as `rates` makes it.
    """
    s, thresholds = STEP_PARTICIPANTS, sorted(set(reached["t"]))
    signed = {t: _first(reached, SIGNED, t) for t in thresholds}
    return [
        PaperClaim(
            "With x >= 2t - s dishonest participants the server sees a participant's update (Figure 1a)",
            f"s = {s}: from x = {', '.join(f'{first[0]} at t = {t}' for t, first in signed.items())} on the update was "
            "reconstructed, at no smaller x",
            [
                *(equal(f"t = {t}: least x", first[0], 2 * t - s) for t, first in signed.items()),
                true("at every greater x, too", all(onwards for _, onwards in signed.values())),
            ],
        ),
        *_rate_claims(table),
    ]


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
        ),
        PaperClaim(
            "Under Lotto SecAgg fails with at most the probability of Corollary 1",
            "; ".join(
                f"c = {c}, t = {t}: {int(rows['reconstructed'].sum())} of {int(rows['rounds'].sum())} rounds "
                f"(bound {rows['Corollary 1 (paper)'].iloc[0]:.2g})"
                for (c, t), rows in lotto.groupby(["c", "t"], sort=False)
            ),
            [equal("rates above the bound (intervals of 95% for all together)", beyond, 0)],
            seeds=int(lotto["rounds"].min()),
        ),
    ]


def _beyond(row: pd.Series, rates: int) -> bool:
    """Check whether a rate's interval lies above the bound; the intervals of all rates hold together with 95%."""
    wide = Proportion.of(int(row["reconstructed"]), int(row["rounds"]), 1 - 0.05 / rates)  # Bonferroni
    return wide.low > float(row["Corollary 1 (paper)"])


def remarks(reached: pd.DataFrame) -> list[str]:
    """Return the differences from the paper, and the limits of this reproduction."""
    thresholds = []
    for t in sorted(set(reached.loc[reached["consistency"] == "none", "t"])):
        firsts = [f"{attack} from x = {_first(reached, ('none', attack), t)[0]}" for _, attack in list(_LOOKS)[1:]]
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
        "exact: the chance that enough candidates, and 2t - s dishonest ones, occur.",
    ]


REPRODUCTIONS = (
    Reproduction(
        "lotto-fig1a",
        "A victim's update under SecAgg with x dishonest participants, and how often that many occur under Lotto",
        "Jiang et al., Lotto, arXiv 2401.02880, Figure 1a and Corollary 1",
        run_fig1a,
        claims_of=lambda table, seeds: [None, *_rate_claims(table)],  # the first is about other runs
    ),
)
