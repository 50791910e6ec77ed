"""Notes below the overhead table: sentences that explain its numbers."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.comparison import cells
from analysis.comparison.cells import baselines, has_failures, has_seed_pairs, is_paired, result_costs, unfinished
from analysis.comparison.seed_pairs import FEW_SEEDS
from testbed.records.reader import format_crashes, format_delay

NOT_FINITE, ENDED_EARLY = "not-finite", "ended-early"
"""Codes of findings with the same content as a note."""

_PRIVACY = "multi_round_privacy_weak"


def notes(
    frame: pd.DataFrame, findings: Sequence[Mapping[str, Any]] = (), columns: Collection[str] | None = None
) -> list[str]:
    """Return the notes below the table, a sentence or two each.

    Args:
        frame: the overhead table.
        findings: from `analysis.findings.plain`, those displayed beside the table; notes do not repeat their content.
        columns: the displayed columns, by their names in `analysis.comparison.columns`; None: all.
    """
    of_columns = []
    if columns is not None and "rounds" in columns and has_failures(frame):
        of_columns.append("Rounds: completed/skipped/aborted.")
    for line in column_notes(frame):
        texts = [text for names, text in line if columns is None or any(name in columns for name in names)]
        of_columns += [" ".join(texts)] if texts else []
    return [*row_notes(frame, findings), *of_columns]


def ratio_note(frame: pd.DataFrame) -> str:
    """Return the meaning of × without a full stop; empty if rounds are paired or every row is its own baseline."""
    if is_paired(frame) or not baselines(frame) or not cells.has_ratios(frame):
        return ""
    return f"× is the ratio to {' / '.join(baselines(frame))}{_first(frame)}"


def row_notes(
    frame: pd.DataFrame, findings: Sequence[Mapping[str, Any]] = (), *, with_ratios: bool = True
) -> list[str]:
    """Return the notes on the table as a whole and on single rows.

    Args:
        frame: the overhead table.
        findings: as for `notes`.
        with_ratios: whether to include `ratio_note`.
    """
    seeds = sorted(set(frame["seeds"]))
    over = "rounds" if seeds == [1] else f"{seeds[0]} seeds" if len(seeds) == 1 else "seeds (or rounds, if one seed)"
    lines = [f"Means over completed rounds ± half-width of the 95% interval over {over}."]
    if is_paired(frame):
        lines = _pair_notes(frame, over)
    elif with_ratios and (ratios := ratio_note(frame)):
        lines[0] = f"{lines[0][:-1]}; {ratios}."
    if has_seed_pairs(frame):
        lines += _seed_pair_notes(frame)
    if (unfinished(frame) & (frame["stopped"] < frame["seeds"])).any():
        lines.append("Unfinished: rows with fewer rounds than planned (of N); their numbers cover the rounds so far.")
    for why in dict.fromkeys(why for why in frame["stopped_at"] if why):
        labels = ", ".join(dict.fromkeys(frame.loc[frame["stopped_at"] == why, "label"]))
        lines.append(f"Stopped at the {why}, before the last of the planned rounds: {labels}.")
    lines += _trouble_notes(frame, findings)
    if "privacy_caveats" in frame:
        for caveat in dict.fromkeys(caveat_text for caveat_text in frame["privacy_caveats"] if caveat_text):
            labels = ", ".join(dict.fromkeys(frame.loc[frame["privacy_caveats"] == caveat, "label"]))
            lines.append(f"Privacy of {labels}: {caveat}.")
    return lines


def column_notes(frame: pd.DataFrame) -> list[list[tuple[tuple[str, ...], str]]]:
    """Return the notes on columns by line: each sentence with the columns of the frame that it explains."""
    lines: list[list[tuple[tuple[str, ...], str]]] = []
    if has_failures(frame):
        text = "Per update: cost of all rounds, including skipped and aborted rounds, per completed round."
        lines.append([(tuple(cells.COSTS_PER_UPDATE), text)])
    if "transport_bytes" in result_costs(frame):
        text = "Overhead: headers, acknowledgements, handshakes and retransmissions; not part of the server traffic."
        lines.append([(("transport_bytes",), text)])
    pooled = (frame["seeds"] > 1).any()
    accuracy = f"Accuracy: last measured{', mean over the seeds ± its 95% interval' if pooled else ''}."
    quality: list[tuple[tuple[str, ...], str]] = [
        (("final_accuracy",), accuracy),
        (("fairness_gap",), "F: aggregation fairness gap."),
        (("aggregation_cardinality",), "C: mean number of updates in the sum, over all rounds."),
    ]
    if pooled:
        quality.append((("fairness_gap", "aggregation_cardinality"), "F and C: means over the seeds."))
    lines.append(quality)
    privacy = (
        "T: fewest clients with a sum that the server can compute from all rounds (weak multi-round privacy)"
        f"{', the smallest of any seed' if pooled else ''}"
    )
    bounded = any(cell.startswith("≥") for cell in cells.privacy(frame))
    of_privacy = (_PRIVACY,)
    lines.append(
        [
            (
                of_privacy,
                f"{privacy}; ≥: proven lower bound, because the search ran out of time." if bounded else f"{privacy}.",
            )
        ]
    )
    if (frame["aggregation"] == "plain").any():
        text = "With plain aggregation the server sees every single update, regardless of T."
        lines.append([(of_privacy, text)])
    return lines


def _trouble_notes(frame: pd.DataFrame, findings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return notes on failed rounds, refusals, diverged training, crashes, and a machine that could not keep up."""
    lines = []
    early, lost_updates = (_rows_of(frame, findings, code) for code in (ENDED_EARLY, NOT_FINITE))
    unexplained = frame[~_labels(frame).isin([*early, *lost_updates])]
    if ends := [f"{name}: {reasons}" for name, reasons in _named(unexplained, "reasons")]:
        lines.append(f"Rounds not completed: {'; '.join(ends)}.")
    if refused := [f"{name}: {text}" for name, text in _named(frame, "unexpected_refusals")]:
        lines.append(f"Refusals in an experiment without an adversary: {'; '.join(refused)}.")
    unexplained_updates = frame[~_labels(frame).isin(lost_updates)]
    if lost := [f"{name}: {text}" for name, text in _named(unexplained_updates, "diverged")]:
        lines.append(f"Training diverged: {'; '.join(lost)}.")
    if crashes := [f"{format_crashes(int(count))} in {name}" for name, count in _named(frame, "crashes")]:
        lines.append(
            f"{'; '.join(crashes)}: these clients count as lost, and each round waited for them until its deadline."
        )
    factors = dict(_named(frame, "behind_factor"))
    for name, rounds in _named(frame, "behind_rounds"):
        lines.append(f"{name}: {format_delay(int(rounds), factors.get(name))}.")
    return lines


def _labels(frame: pd.DataFrame) -> pd.Series:
    """Return the label of each row with its setting, as findings name rows."""
    names = [",".join(filter(None, pair)) for pair in zip(frame["label"], frame["setting"], strict=True)]
    return pd.Series(names, index=frame.index, dtype=object)


def _rows_of(frame: pd.DataFrame, findings: Sequence[Mapping[str, Any]], code: str) -> list[str]:
    """Return the labels of the rows that the findings with this code hold for."""
    rows = [finding["rows"] or _labels(frame).tolist() for finding in findings if finding["code"] == code]
    return [label for labels in rows for label in labels]


def _named(frame: pd.DataFrame, column: str) -> list[tuple[str, Any]]:
    """Return label (with its setting) and value of the rows that have a value other than 0 or empty."""
    return [
        (label, value)
        for label, value in zip(_labels(frame), frame[column], strict=True)
        if value and not pd.isna(value)
    ]


def _first(frame: pd.DataFrame) -> str:
    """Return a clause that says that the baseline is the first row of each setting; empty if it is not."""
    firsts = frame.loc[list(cells.settings(frame)), "is_baseline"]
    names = "row" if len(firsts) == 1 else "row of each setting"
    return f", the first {names}" if len(frame) > 1 and firsts.all() else ""


def _seed_pair_notes(frame: pd.DataFrame) -> list[str]:
    counts = sorted(set(frame.loc[~frame["is_baseline"], "seed_pairs"]))
    sample = f"n = {'-'.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} seeds" if counts else "n seeds"
    lines = [
        f"Differences: row minus baseline in runs with the same seed ({sample}), mean ± half-width of its 95% "
        "interval; p: paired t-test (two-sided, n - 1 degrees of freedom), not corrected for the number of rows."
    ]
    if counts and counts[0] < FEW_SEEDS:
        lines.append(
            f"Fewer than {FEW_SEEDS} seeds: the test has little power, and its assumption of normally distributed "
            "differences cannot be checked."
        )
    return lines


def _pair_notes(frame: pd.DataFrame, over: str) -> list[str]:
    base = " / ".join(baselines(frame))
    lines = [
        f"Means over the rounds that {base or 'the baseline'} also completed, matched by number, ± half-width of the "
        f"95% interval over {over}; × is the ratio to its mean over the same rounds, ± its own half-width.",
        "Identical: pairs of rounds with the same participants, unavailable clients and dropouts.",
    ]
    if (frame["pairs_same_stages"] < frame["pairs_identical"]).any():
        lines[-1] = lines[-1][:-1] + "; some of them in other stages."
    if names := _labels(frame[frame["pairs_same_seed"] < frame["pairs"]]).tolist():
        lines.append(
            f"The seeds of {base} and {', '.join(dict.fromkeys(names))} differ or are not set, so data and initial "
            "model differ. Give both experiments the same `seed`."
        )
    return lines
