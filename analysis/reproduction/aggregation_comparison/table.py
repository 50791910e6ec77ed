"""Comparison of secure aggregation: time by phase, bytes, chance and cost of a sum, and the attacks that each protocol
withstands.

plain, secagg (Bonawitz et al., CCS 2017), secagg-plus (Bell et al., CCS 2020), lightsecagg (So et al., MLSys 2022),
flamingo (Ma et al., S&P 2023), e-seafl (Behnia et al., ACSAC 2024), pine (Rothblum et al., USENIX Security 2024) and
one-shot (Karthikeyan and Polychroniadou, CRYPTO 2025) run the same task: clients that are always available, exact
numbers of dropouts, independent dropouts, and phones on three kinds of links. The number of participants, the length of
the vector, and the corrupted share of the participants vary, too.
"""

from typing import Any

import pandas as pd

from analysis.reproduction.aggregation_comparison.claims import claims
from analysis.reproduction.aggregation_comparison.conditions import SIZES, Condition, PlannedRuns, planned
from analysis.reproduction.aggregation_comparison.costs import (
    Row,
    costs,
    first_of,
    per_sum,
    points_share,
    rows_of,
    selected,
    tolerance_in,
)
from analysis.reproduction.aggregation_comparison.figure import draw
from analysis.reproduction.aggregation_comparison.measures import promised, rounds_of
from analysis.reproduction.aggregation_comparison.protocols import PROTOCOLS, ComparedProtocol
from analysis.reproduction.aggregation_comparison.remarks import remarks
from analysis.reproduction.aggregation_comparison.withstood import (
    RATES,
    not_protected,
    rates_of,
    survey_rows,
    withstood,
)
from analysis.reproduction.contract import (
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from testbed.plugins.classes import importing_classes

SUMMARY = "summary"
"""Value of `varied` in the rows of the README's table."""

_LOSSES = {None: "", True: "completed", False: "ended"}
_NOT_COSTS = ("each leaves", "counted", "lost, points free")


def measure_comparison(context: ReproductionContext) -> Measurements:
    """Run all protocols under all conditions at the context's scale."""
    with importing_classes(True):  # the model of the losses is a class of this package
        return _measured(context)


def _measured(context: ReproductionContext) -> Measurements:
    size = SIZES[context.scale]
    rounds: list[dict[str, Any]] = []
    settings: list[dict[str, Any]] = []
    for condition in [*size.conditions(), *size.counting()]:
        for compared in PROTOCOLS:
            if not condition.concerns(compared):
                continue
            place = _place(condition, compared)
            plan = planned(size, condition, compared)
            if plan is None:
                continue
            settings.append({**place, **_setting(condition, compared, plan)})
            context.progress(f"{compared.name}, {condition.varied} {condition.value}".strip())
            directory = context.out / "runs" / condition.directory / compared.directory
            for run in context.run_experiment(plan.experiment, directory):
                seed = int(run.experiment["seed"])
                rounds += [{**place, "seed": seed, **row} for row in rounds_of(run, compared)]
    survey = []
    for compared in PROTOCOLS:
        if "phones" in compared.only:  # the same protocol as the row before, with another committee in each round
            continue
        for rate in rates_of(compared):
            context.progress(f"misbehaviours against {compared.name}, set up for {rate:.0%} dropouts")
            survey += survey_rows(compared, rate, withstood(context, compared, rate))
    tables = {name: pd.DataFrame(rows) for name, rows in
              {"rounds": rounds, "settings": settings, "survey": survey}.items()}  # fmt: skip
    setting = Setting(
        "none",
        seeds=list(size.seeds),
        sizes={"participants": size.participants, "counted rounds": size.counted},
        differs=["own task and links; the papers' seconds are of other machines, languages and networks"],
    )
    measurements = Measurements(setting, tables)
    return Measurements(setting, tables, draw(conclude_comparison(measurements).table, context.out / "generations"))


def _place(condition: Condition, compared: ComparedProtocol) -> dict[str, Any]:
    return {
        "varied": condition.varied,
        "value": condition.value,
        "losses": _LOSSES[condition.completes],
        "protocol": compared.name,
    }


def _setting(condition: Condition, compared: ComparedProtocol, plan: PlannedRuns) -> dict[str, Any]:
    """Return the numbers of a row that do not come from rounds."""
    n, tolerance = condition.setting.participants, plan.tolerance
    section = plan.experiment.aggregation
    guarantees = promised(plan.experiment, n)
    return {
        "n": n,
        "number": condition.number or 0,
        "rate": condition.rate,
        "corrupted": condition.setting.corrupted,
        "T": section.max_colluders_for(n) if hasattr(section, "max_colluders_for") else condition.setting.corrupted,
        "bits": plan.bits,
        "session": compared.session,
        "may be lost": tolerance.lost,
        "members": tolerance.members,
        "members may be lost": tolerance.members_lost,
        **guarantees,
        "server": compared.server,
        "serve": tolerance.members or compared.helpers,
    }


def conclude_comparison(measurements: Measurements) -> ReproductionResult:
    """Return costs and chances of all rows, the claims of the papers, and remarks."""
    frame = frame_of(measurements)
    return ReproductionResult(
        _shown(frame),
        claims=claims(frame),
        remarks=remarks(measurements, frame),
    )


def frame_of(measurements: Measurements) -> pd.DataFrame:
    """Return the table with numbers as numbers: one row for each condition and protocol, then the summary."""
    rounds, settings = measurements.tables["rounds"], measurements.tables["settings"]
    survey = measurements.tables["survey"]
    rows = [
        {**_named(setting), **_cost_row(rounds, settings, setting), "not protected": _unprotected(survey, setting)}
        for setting in rows_of(settings)
        if setting["varied"] not in _NOT_COSTS
    ]
    rows += _independent(rounds, settings)
    frame = pd.DataFrame(rows)
    return pd.concat([frame, summary(frame)], ignore_index=True)


def _named(setting: Row) -> dict[str, Any]:
    shown = ("varied", "value", "protocol", "n", "bits", "may be lost", "members", "members may be lost", "least sum",
             "may collude", "server", "serve", "T", "corrupted")  # fmt: skip
    return {name: setting[name] for name in shown}


def _cost_row(rounds: pd.DataFrame, settings: pd.DataFrame, setting: Row) -> dict[str, Any]:
    """Return the costs of one row, and its chance of a sum with an exact number of losses."""
    place = {name: str(setting[name]) for name in ("varied", "value", "protocol")}
    columns = costs(selected(rounds, **place), setting)
    if setting["varied"] == "lost":
        tolerance = tolerance_in(setting)
        columns["lost"] = int(setting["number"])
        columns["chance of a sum"] = tolerance.completes_with_number(int(setting["number"]))
        columns["chance of a sum (independent)"] = tolerance.completes_with_rate(float(setting["rate"]))
        free = selected(rounds, **{**place, "varied": "lost, points free"})
        if len(free):
            same = selected(rounds, **place)
            of_seeds = costs(same[same["seed"].isin(free["seed"])], setting)
            columns |= points_share(of_seeds, free, setting)
    return columns


def _independent(rounds: pd.DataFrame, settings: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows for independent dropouts, of all protocols that have rows with an exact number of losses."""
    rows = []
    leaving = selected(settings, varied="lost")
    names = list(dict.fromkeys(settings["protocol"]))
    for rate in sorted(set(leaving["rate"])):
        value, exact = f"{rate:.0%}", leaving[leaving["rate"] == rate]
        for name in names:
            timed = selected(settings, varied="each leaves", value=value, protocol=name)
            planned_row = first_of(selected(exact, protocol=name), timed)
            if planned_row is None:
                continue
            mine = selected(rounds, protocol=name)
            number = selected(exact, protocol=name)["value"].tolist()
            of_row = {
                "exact": selected(mine, varied="lost", value=number[0]) if number else mine.iloc[:0],
                "completed": selected(mine, varied="each leaves", value=value, losses="completed"),
                "ended": selected(mine, varied="each leaves", value=value, losses="ended"),
                "counted": selected(mine, varied="counted", value=value),
            }
            columns = per_sum(of_row, planned_row, rate)
            rows.append({**_named(planned_row), "varied": "each leaves", "value": value, **columns})
    return rows


def _unprotected(survey: pd.DataFrame, setting: Row) -> str:
    """Return the misbehaviours without protection, where the protocol is set up for the nearest dropout rate."""
    if survey.empty:
        return ""
    own = survey[survey["protocol"] == setting["protocol"]]
    below = [rate for rate in RATES if rate <= max(float(setting["rate"]), RATES[0]) and rate in set(own["rate"])]
    rows = own[own["rate"] == max(below, default=RATES[0])]
    return "" if rows.empty else not_protected(rows)


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the README's rows: each protocol in words, with the numbers that a choice needs.

    Args:
        frame: rows of all conditions.
    """
    rows = []
    rates = sorted({str(value) for value in selected(frame, varied="each leaves")["value"]}, key=_percent)
    few, half = (rates[0], rates[-1]) if rates else ("", "")
    for compared in PROTOCOLS:
        base = first_of(selected(frame, varied="always on", protocol=compared.name))
        if compared.name != compared.protocol or base is None:
            continue
        lost = selected(frame, varied="lost", protocol=compared.name)
        chances = {
            rate: first_of(selected(frame, varied="each leaves", value=rate, protocol=compared.name)) or {}
            for rate in (few, half)
        }
        round_ = first_of(lost[lost["lost"] == lost["lost"].min()]) or {}
        rows.append(
            {
                "varied": SUMMARY,
                "value": "",
                "protocol": compared.name,
                "updates are hidden from": compared.hidden_from_text(base),
                "further parties at work": compared.workers_text(base),
                "messages per client": _messages(base),
                "upload [MB per client]": base["MB up"],
                "round with a tenth lost [s]": round_.get("round s"),
                "at best [s]": _at_best(round_),
                "server's work in it [s]": round_.get("server s"),
                "sum if a tenth leave": _percentage(chances[few].get("chance of a sum")),
                "sum if half leave": _percentage(chances[half].get("chance of a sum")),
                "time per sum if half leave [s]": chances[half].get("round s per sum"),
            }
        )
    return pd.DataFrame(rows)


def _at_best(row: Row) -> float | None:
    """Return a round's seconds with the set-up while clients train, and with fast products of points (computed)."""
    seconds, rest = row.get("round s"), row.get("round s (set-up while training)")
    if seconds is None or rest is None or pd.isna(rest):
        return None
    fast = row.get("round s (fast points)")
    saved = 0.0 if fast is None or pd.isna(fast) else seconds - fast
    return float(rest - saved)


def _messages(row: Row) -> str:
    """Return the number of messages of a client, and of a client that serves on the committee."""
    fewest, most = (row[name] for name in ("questions", "most questions"))
    if pd.isna(fewest):
        return "–"
    return f"{fewest:.0f}" if fewest == most else f"{fewest:.0f} (a member: {most:.0f})"


def _percent(text: str) -> int:
    return int(text.rstrip("%"))


def _percentage(chance: float | None) -> str:
    """Return a probability in percent, such that 0% is no rounded value."""
    if chance is None or pd.isna(chance):
        return "–"
    if chance >= 0.999:
        return "≥ 99.9%"
    if 0 < chance < 0.001:
        return "< 0.1%"
    return f"{100 * chance:.1f}%"


_COUNTS = (
    "n", "bits", "stages", "questions", "most questions", "may be lost", "members", "members may be lost", "least sum",
    "serve",
)  # fmt: skip


def _shown(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table for people: counts as text, chances in percent."""
    shown = frame.drop(columns=["T", "corrupted", "lost"])
    for name in _COUNTS:
        shown[name] = [None if pd.isna(count) else f"{count:.0f}" for count in shown[name]]
    for name in ("chance of a sum", "chance of a sum (independent)"):
        if name in shown:
            shown[name] = [None if pd.isna(chance) else _percentage(chance) for chance in shown[name]]
    return shown


REPRODUCTIONS = (
    Reproduction(
        "generations",
        "Secure aggregation by generation: time by phase, bytes, chance and cost of a sum, and attacks withstood",
        "Bonawitz et al., ePrint 2017/281; Bell et al., ePrint 2020/704; So et al., arXiv 2109.14236; Ma et al., arXiv "
        "2308.09883; Karthikeyan and Polychroniadou, arXiv 2410.22303; Behnia et al., arXiv 2304.03841; Rothblum et "
        "al., arXiv 2311.10237",
        scales=("small", "real"),
        measure=measure_comparison,
        conclude=conclude_comparison,
    ),
)
