"""Success of an adversary: rounds in which honest parties detected its attacks, and its share of the participants.

The shares are compared with Theorem 2 of Lotto (arXiv 2401.02880, section 3.4).

A round is attacked when a misbehaviour was carried out in it. An honest party detects the attack when a client refuses,
or the honest server catches a client cheating. Such a round is refused, unless its only consequence is that the server
left out the cheating clients and completed the round without them. An attack succeeds in a round that is completed
without a detection; the round's dishonest participants are x of s. Pr[x/s > eta c/n] is over all rounds that the
adversary had planned to attack: a round with a detection, or one that ended early, gains nothing.
"""

import json
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import pandas as pd

from analysis.bounds.lotto import allowed, dishonest_fraction_exceeds
from analysis.statistics import Proportion
from analysis.tables import WIDTH, Table, data, protocol_name, require_format
from analysis.tables import render as render_table
from testbed.adversary.catalogue import update_recovered
from testbed.adversary.section import AdversarySection, Named, name_of
from testbed.errors import ExperimentError
from testbed.records import RunRecords
from testbed.selection.lotto.refinement import Refinement

DETECTIONS = ("refusal", "misbehaviour")
NEVER_CARRIED_OUT = "never carried out"
"""Table cell of runs without detections because the misbehaviours of the experiment did not arise."""
ETA = 2.0


@dataclass(frozen=True)
class AttackOutcome:
    """Success of the adversary in one run.

    Attributes:
        planned: recorded rounds that were to be attacked.
        attacked: rounds in which a misbehaviour was carried out.
        refused: attacked rounds in which a client refused, or which ended early after the server had caught a client.
        left_out: attacked rounds in which no client refused, and which the server completed without the clients that it
            caught.
        checks: (check, stage, rounds in which it failed), the most frequent first.
        completed: attacked rounds that were completed without a detection.
        dishonest: number of dishonest participants of each of the `completed` rounds, in their order. Where no
            misbehaviour was ever carried out (an honest server, dishonest clients that do nothing else): of each
            completed round that was to be attacked.
        dishonest_if_verified: the same, of the rounds with an honest participant, which verifies the list.
        recovered: attacked rounds in which a single client's update was recovered.
    """

    planned: int
    attacked: int
    refused: int
    left_out: int
    checks: tuple[tuple[str, str, int], ...]
    completed: int
    dishonest: tuple[int, ...]
    dishonest_if_verified: tuple[int, ...]
    recovered: int

    @property
    def all_dishonest(self) -> int:
        """Rounds of `dishonest` in which every participant was dishonest."""
        return len(self.dishonest) - len(self.dishonest_if_verified)

    @property
    def detected(self) -> int:
        """Attacked rounds in which an honest party detected the attack."""
        return self.refused + self.left_out

    def exceeding(self, most: int, confidence: float = 0.95) -> Proportion:
        """Return the rate of rounds that have an honest participant and more than `most` dishonest ones.

        Args:
            most: number of dishonest participants that is not counted yet.
            confidence: of the interval.

        Returns:
            The rate over all planned rounds.
        """
        # Nobody verifies a list without an honest participant, and its sum has no honest client's update. Theorem 2
        # does not cover such a round.
        return Proportion.of(sum(x > most for x in self.dishonest_if_verified), self.planned, confidence)


def attacks(events: pd.DataFrame, name: str = "") -> pd.DataFrame:
    """Select the events that record an attack.

    Args:
        events: of a run.
        name: name of a misbehaviour; empty: all.
    """
    return events[(events["kind"] == "attack") & events["detail"].str.startswith(f"{name}: " if name else "")]


def attack_outcome(run: RunRecords, name: str = "") -> AttackOutcome:
    """Evaluate the recorded attacks of a run that has an adversary.

    Args:
        run: its records.
        name: name of a misbehaviour; empty: all.
    """
    events, rounds = run.events, run.rounds
    section = AdversarySection.model_validate(run.experiment["adversary"])
    planned = {number for number in rounds["round"] if section.attacks(number)}
    attacked = set(attacks(events, name)["round"])
    detections = events[events["kind"].isin(DETECTIONS) & events["round"].isin(attacked)]
    if section.server and not section.clients:
        # An honest client that keeps its input back sends an empty vector: the server's record of it is no detection.
        kept_back = detections["detail"].str.contains("<0 elements>", regex=False).astype(bool)
        detections = detections[(detections["kind"] == "refusal") | ~kept_back]
    completed = set(rounds.loc[rounds["outcome"] == "completed", "round"])
    # The server went on without the clients that it caught: the round counts as detected, but not as refused.
    left_out = (set(detections["round"]) & completed) - set(detections.loc[detections["kind"] == "refusal", "round"])
    names = [
        detail.partition(":")[0] if kind == "refusal" else detail
        for kind, detail in zip(detections["kind"], detections["detail"], strict=True)
    ]
    # A check counts once a round, however many clients it failed at.
    where = Counter(
        (name, stage) for name, stage, _ in set(zip(names, detections["stage"], detections["round"], strict=True))
    )
    unseen = (attacked or planned) - set(detections["round"])
    done = sorted(unseen & completed)
    by_round = run.participation.groupby("round")["dishonest"]
    counts, nobody_honest = by_round.sum(), by_round.all()
    attack_events = attacks(events, name)
    recovered = attack_events.loc[[update_recovered(detail) for detail in attack_events["detail"]], "round"].nunique()
    checks = sorted(where.items(), key=lambda item: (-item[1], item[0]))
    return AttackOutcome(
        len(planned),
        len(attacked),
        len(set(detections["round"]) - left_out),
        len(left_out),
        tuple((check, stage, times) for (check, stage), times in checks),
        len(attacked.intersection(done)),
        tuple(int(counts.get(number, 0)) for number in done),
        tuple(int(counts.get(number, 0)) for number in done if not nobody_honest.get(number, False)),
        int(recovered),
    )


def adversaries(runs: Sequence[RunRecords], eta: float = ETA) -> pd.DataFrame:
    """Tabulate the success of the adversaries, one row per run that has one.

    Columns: label; selection, aggregation; server, clients (misbehaviours, with the options that were set);
    population, dishonest (c), participants (s); rounds, planned, attacked, refused, left_out, checks, completed,
    all_dishonest and recovered (see `AttackOutcome`); counted (rounds of `AttackOutcome.dishonest`), and mean, max and
    distribution (rounds with 0, 1, ... s) of the dishonest participants in them, and due, s c / n; eta, exceeded
    (rounds with an honest participant and x/s > eta c/n), its rate with low and high; and bound, Theorem 2's, where
    selection is Lotto.

    Args:
        runs: records.
        eta: factor over the expected share of dishonest participants.

    Raises:
        ExperimentError: if no run has an adversary, or eta is not above 0 and finite.
    """
    if not 0 < eta < inf:
        raise ExperimentError(f"--eta {eta:g}: must be above 0 and finite")
    rows = [_row(run, eta) for run in runs if run.experiment.get("adversary")]
    if not rows:
        raise ExperimentError(f"{runs[0].path if runs else 'no run'}: no run here has an `adversary:` section")
    return pd.DataFrame(rows)


def _row(run: RunRecords, eta: float) -> dict[str, Any]:
    experiment, outcome = run.experiment, attack_outcome(run)
    section = AdversarySection.model_validate(experiment["adversary"])
    population, selection = int(experiment["population"]), experiment["selection"]
    s, c = int(selection["participants"]), section.number_of(population)
    share = outcome.exceeding(allowed(population, c, s, eta))
    longest = max((s, *outcome.dishonest))
    return {
        "label": run.label,
        "selection": protocol_name(selection),
        "aggregation": protocol_name(experiment["aggregation"]),
        "server": [format_misbehaviour(misbehaviour) for misbehaviour in section.server],
        "clients": [format_misbehaviour(misbehaviour) for misbehaviour in section.clients],
        "population": population,
        "dishonest": c,
        "participants": s,
        "rounds": len(run.rounds),
        "planned": outcome.planned,
        "attacked": outcome.attacked,
        "refused": outcome.refused,
        "left_out": outcome.left_out,
        "checks": [{"check": check, "stage": stage, "rounds": times} for check, stage, times in outcome.checks],
        "completed": outcome.completed,
        "all_dishonest": outcome.all_dishonest,
        "recovered": outcome.recovered,
        "counted": len(outcome.dishonest),
        "mean": sum(outcome.dishonest) / len(outcome.dishonest) if outcome.dishonest else None,
        "max": max(outcome.dishonest, default=None),
        "distribution": [outcome.dishonest.count(x) for x in range(longest + 1)],
        "due": s * c / population,
        "eta": eta,
        "exceeded": share.count,
        "rate": share.rate if share.trials else None,
        "low": share.low,
        "high": share.high,
        "bound": _bound(selection, population, c, eta),
    }


def format_misbehaviour(misbehaviour: Named) -> str:
    """Return a misbehaviour as in the experiment: its name, and its options in brackets."""
    own_options = next(iter(misbehaviour.values())) if isinstance(misbehaviour, dict) else {}
    options = ", ".join(f"{key}={value}" for key, value in own_options.items())
    return f"{name_of(misbehaviour)} ({options})" if options else name_of(misbehaviour)


def _bound(selection: dict[str, Any], population: int, dishonest: int, eta: float) -> float | None:
    if "over_selection" not in selection:
        return None
    s, factor, least = (selection[key] for key in ("participants", "over_selection", "min_population"))
    # Refinement shrinks the population, so that clients accept a smaller one than n.
    if least is None and selection.get("refine"):
        least = Refinement.model_validate(selection["refine"]).smallest(population)
    return dishonest_fraction_exceeds(population, dishonest, s, factor, eta, least)


# -- printing -------------------------------------------------------------------------------------------------------


_RARE = {
    "Cheaters excluded": (
        "left_out",
        "attacked rounds that the server completed without the clients that failed its checks; no client refused",
    ),
    "No honest participant": (
        "all_dishonest",
        "rounds without an honest participant; nobody verified the list, and the sum has no honest update",
    ),
    "Updates recovered": ("recovered", "attacked rounds in which the server obtained a single client's update"),
}
"""Table heads that appear only if there is a round to count: the column of the frame, and the meaning."""


def render(frame: pd.DataFrame, format: str = "text") -> str:
    """Render the table of `adversaries`, ending in a line feed.

    Args:
        frame: of `adversaries`.
        format: ``text``, ``markdown``, ``csv`` or ``json``.

    Raises:
        ExperimentError: for another format.
    """
    require_format(format, "text", "markdown", "csv", "json")
    if format == "json":
        return data(frame, format)
    if format == "csv":
        lists = {name: frame[name].map(json.dumps) for name in ("server", "clients", "checks", "distribution")}
        return data(frame.assign(**lists), format)
    tables = "\n".join(render_table(table, format) for table in (_detection_table(frame), _shifts(frame)))
    lines = [textwrap.fill(note, WIDTH, break_on_hyphens=False) for note in _notes(frame)]
    return "\n".join([tables, *lines]) + "\n"


_UNATTACKED = (
    " If Attacked is 0, the second table covers all completed rounds of the plan. "
    f"{NEVER_CARRIED_OUT.capitalize()}: no attack was recorded."
)


def _notes(frame: pd.DataFrame) -> list[str]:
    """Explain the heads of both tables, a line each."""
    eta = f"{frame['eta'].iloc[0]:g}"
    return [
        "Rounds: rounds in which an attack was planned. Attacked: rounds with an attack. Attacks refused: attacked "
        "rounds in which a check of an honest party failed; the round may complete all the same. Completed "
        "undetected: attacked rounds that completed without a failed check. Dishonest participants, mean and "
        "maximum: over the rounds completed undetected."
        + (_UNATTACKED if not frame["attacked"].all() else "")
        + "".join(f" {head}: {meaning}." for head, (name, meaning) in _RARE.items() if frame[name].any()),
        "Expected: s c / n, for s participants and c dishonest of n clients. "
        f"Above {eta}× expected: share of the planned rounds with more than {eta} s c / n dishonest participants and "
        "at least one honest participant, and its 95% interval. Lotto's bound: largest probability of such a "
        "round among all announced ones, Theorem 2 of Lotto (arXiv 2401.02880); –: not Lotto.",
    ]


def _named(frame: pd.DataFrame) -> list[str]:
    """Return the row names: the misbehaviours, the selection where it differs, or else the runs' own labels."""
    names = [" + ".join((*row["server"], *row["clients"])) or "no misbehaviour" for _, row in frame.iterrows()]
    if frame["selection"].nunique() > 1:
        names = [f"{selection}: {name}" for selection, name in zip(frame["selection"], names, strict=True)]
    return names if len(set(names)) == len(names) else frame["label"].tolist()


def _detection_table(frame: pd.DataFrame) -> Table:
    numbers = {
        "Rounds": "planned",
        "Attacked": "attacked",
        "Attacks refused": "refused",
        "Cheaters excluded": "left_out",
    }
    numbers |= {
        "Completed undetected": "completed",
        "No honest participant": "all_dishonest",
        "Updates recovered": "recovered",
    }
    for head, (column, _) in _RARE.items():
        if not frame[column].any():
            del numbers[head]
    rows = []
    for name, (_, row) in zip(_named(frame), frame.iterrows(), strict=True):
        checks = [f"{failure['check']} at {failure['stage']} ({failure['rounds']})" for failure in row["checks"]]
        is_idle = not row["attacked"] and [*row["server"], *row["clients"]]
        detections = ", ".join(checks) or (NEVER_CARRIED_OUT if is_idle else "none")
        rows.append([name, *(str(row[column]) for column in numbers.values()), detections])
    heads = ["Adversary", *numbers, "Failed checks (rounds)"]
    return Table(heads, rows, left=(0, len(heads) - 1))


def _shifts(frame: pd.DataFrame) -> Table:
    often = f"Above {frame['eta'].iloc[0]:g}× expected"
    rows = [[name, *_shift(row)] for name, (_, row) in zip(_named(frame), frame.iterrows(), strict=True)]
    heads = ["Adversary", "Dishonest participants, mean", "maximum", "expected", often, "95% interval", "Lotto's bound"]
    return Table(heads, rows, left=[0])


def _shift(row: Any) -> list[str]:
    mean, most, rate, interval = ["–"] * 4
    if row["counted"]:
        mean, most = f"{row['mean']:.2f} of {row['participants']}", str(int(row["max"]))
    if row["planned"]:
        rate, interval = f"{row['rate']:.4g}", f"{row['low']:.4g} to {row['high']:.4g}"
    bound = "–" if pd.isna(row["bound"]) else f"{row['bound']:.4g}"
    return [mean, most, f"{row['due']:.2f}", rate, interval, bound]
