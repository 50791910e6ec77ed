"""What to know about the numbers of the overhead table, in sentences."""

from collections.abc import Collection
from typing import Any

import pandas as pd

from analysis.comparison import cells
from analysis.comparison.cells import baselines, has_failures, has_seed_pairs, is_paired, result_costs, unfinished
from analysis.comparison.seed_pairs import FEW_SEEDS
from testbed.records.reader import behind_told, crashes_told

_LETTERS = {"F": "fairness_gap", "C": "aggregation_cardinality"}
_MEANINGS = {"F": "F: aggregation fairness gap.", "C": "C: mean number of updates in the sum, over all rounds."}


def notes(frame: pd.DataFrame, columns: Collection[str] | None = None) -> list[str]:
    """What a reader needs to know about the numbers, a sentence or two each.

    Args:
        frame: the overhead table.
        columns: those that are shown, by their names in `analysis.comparison.columns`; None: all.
    """

    def is_shown(*names: str) -> bool:
        return columns is None or any(name in columns for name in names)

    seeds = sorted(set(frame["seeds"]))
    over = "rounds" if seeds == [1] else f"{seeds[0]} seeds" if len(seeds) == 1 else "seeds (or rounds, if one seed)"
    lines = [f"Means over completed rounds ± half-width of the 95% interval over {over}."]
    if is_paired(frame):
        lines = _pair_notes(frame, over)
    elif baselines(frame):
        lines[0] = f"{lines[0][:-1]}; × is the ratio to {' / '.join(baselines(frame))}{_first(frame)}."
    if has_seed_pairs(frame):
        lines += _seed_pair_notes(frame)
    if (unfinished(frame) & (frame["stopped"] < frame["seeds"])).any():
        lines.append("Unfinished, of so many rounds planned: the numbers of such a row are those of its rounds so far.")
    for why in dict.fromkeys(why for why in frame["stopped_at"] if why):
        who = ", ".join(dict.fromkeys(frame.loc[frame["stopped_at"] == why, "label"]))
        lines.append(f"Stopped at the {why}, after so many of the rounds planned: {who}.")
    lines += _trouble_notes(frame)
    if "privacy_caveats" in frame:
        for said in dict.fromkeys(one for one in frame["privacy_caveats"] if one):
            who = ", ".join(dict.fromkeys(frame.loc[frame["privacy_caveats"] == said, "label"]))
            lines.append(f"Privacy of {who}: {said}.")
    if has_failures(frame) and is_shown("round_s_per_update", "server_bytes_per_update"):
        lines.append("Per update: what all rounds took, skipped and aborted ones included, per completed round.")
    if "transport_bytes" in result_costs(frame) and is_shown("transport_bytes"):
        lines.append(
            "Overhead: headers, acknowledgements, handshakes, what is sent again; not in the server's traffic."
        )
    pooled = seeds != [1]
    if columns is not None and "rounds" in columns and has_failures(frame):
        lines.append("Rounds: completed/skipped/aborted.")
    results = []
    if is_shown("final_accuracy"):
        results.append(f"Accuracy: last measured{', mean over the seeds ± its 95% interval' if pooled else ''}.")
    letters = [letter for letter, name in _LETTERS.items() if is_shown(name)]
    results += [_MEANINGS[letter] for letter in letters]
    if pooled and letters:
        results.append(f"{' and '.join(letters)}: means over the seeds.")
    lines += [" ".join(results)] if results else []
    if is_shown("multi_round_privacy_weak"):
        privacy = (
            "T: fewest users whose sum the server can compute from the sums of these rounds (weak multi-round privacy)"
            f"{', the smallest of any seed' if pooled else ''}"
        )
        bounded = any(cell.startswith("≥") for cell in cells.privacy(frame))
        lines.append(f"{privacy}; ≥: proved, the search did not end." if bounded else f"{privacy}.")
    if (frame["aggregation"] == "plain").any() and is_shown("multi_round_privacy_weak"):
        lines.append("With plain aggregation the server sees each update alone, whatever T says of the sums.")
    return lines


def _trouble_notes(frame: pd.DataFrame) -> list[str]:
    """Why rounds did not complete, crashes, and a machine that could not keep up."""
    lines = []
    if ends := [f"{name}: {reasons}" for name, reasons in _named(frame, "reasons")]:
        lines.append(f"Not completed: {'; '.join(ends)}.")
    if refused := [f"{name}: {told}" for name, told in _named(frame, "unexpected_refusals")]:
        lines.append(f"Nobody was to be dishonest, and yet there were refusals. {'; '.join(refused)}.")
    if lost := [f"{name}: {told}" for name, told in _named(frame, "diverged")]:
        lines.append(f"Training diverged. {'; '.join(lost)}.")
    if crashes := [f"{crashes_told(int(count))} in {name}" for name, count in _named(frame, "crashes")]:
        lines.append(f"{'; '.join(crashes)}: counted as lost, waited for until the deadline.")
    factors = dict(_named(frame, "behind_factor"))
    for name, rounds in _named(frame, "behind_rounds"):
        lines.append(f"{name}: {behind_told(int(rounds), factors.get(name))}.")
    return lines


def _named(frame: pd.DataFrame, column: str) -> list[tuple[str, Any]]:
    """Label (with its setting) and value of the rows whose value is neither 0 nor empty."""
    labels = [",".join(filter(None, names)) for names in zip(frame["label"], frame["setting"], strict=True)]
    return [(label, value) for label, value in zip(labels, frame[column], strict=True) if value and not pd.isna(value)]


def _first(frame: pd.DataFrame) -> str:
    """Says so where the baseline is the first row of each setting."""
    firsts = frame.loc[list(cells.settings(frame)), "is_baseline"]
    names = "row" if len(firsts) == 1 else "row of each setting"
    return f", the first {names}" if len(frame) > 1 and firsts.all() else ""


def _seed_pair_notes(frame: pd.DataFrame) -> list[str]:
    counts = sorted(set(frame.loc[~frame["is_baseline"], "seed_pairs"]))
    told = f"n = {'-'.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} seeds" if counts else "n seeds"
    lines = [
        f"Differences: row less baseline in runs of the same seed ({told}), mean ± half-width of its 95% interval; p "
        "of the paired t-test (two-sided, n - 1 degrees of freedom), not corrected for the number of rows."
    ]
    if counts and counts[0] < FEW_SEEDS:
        lines.append(
            f"Fewer than {FEW_SEEDS} seeds: the test has little power, and whether the differences are normal, as it "
            "takes for granted, cannot be seen."
        )
    return lines


def _pair_notes(frame: pd.DataFrame, over: str) -> list[str]:
    base = " / ".join(baselines(frame))
    lines = [
        f"Means over the rounds that {base or 'the baseline'} completed too, matched by number, ± half-width of the "
        f"95% interval over {over}; × is the ratio to its mean over the same rounds, ± that of the paired ratio.",
        "Identical: pairs in which the same clients took part and the same of them were offline or dropped out.",
    ]
    if (frame["pairs_same_stages"] < frame["pairs_identical"]).any():
        lines[-1] = lines[-1][:-1] + ", in other stages for some."
    return lines
