"""The overhead table as text, Markdown, CSV, LaTeX or JSON.

Text, Markdown and LaTeX are for people: scaled units, the per-update columns only where a round has failed. CSV and
JSON are for programs: every column of `analysis.comparison.overhead.compare`, in seconds and bytes.
"""

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.comparison import target_table
from analysis.tables import WIDTH, Table, bytes_unit, csv, latex, markdown, require_format, seconds_unit, to_json
from analysis.tables import render as render_table
from testbed.display import visible
from testbed.records.reader import behind_told, crashes_told

_SHORTEST_LABEL = 16
_MISSING = "–"
_COSTS = {
    "round_s": "Round time",
    "client_s": "Client time",
    "server_bytes": "Server traffic",
    "client_bytes": "Client traffic",
}
_COSTS_PER_UPDATE = {"round_s_per_update": "Time/update", "server_bytes_per_update": "Traffic/update"}
_TRANSPORT = {"transport_bytes": "Overhead"}
_ROUNDS = ["rounds_completed", "rounds_skipped", "rounds_aborted"]

Columns = dict[str, list[str]]
"""Cells by heading."""


def render(frame: pd.DataFrame, format: str = "text", targets: pd.DataFrame | None = None) -> str:
    """The table of `analysis.comparison.overhead.compare`, ending in a line feed; the same frame gives the same bytes.

    Below it stands that of the targets; CSV, which has room for one table, leaves it out.

    Args:
        frame: from `compare`, or `analysis.comparison.overhead.compare_paired`.
        format: ``text`` (labels are shortened where 118 columns do not suffice), ``markdown``, ``csv``, ``latex``
            (needs the package booktabs) or ``json`` (``{"baseline": label, or list of labels, "rows": [...],
            "targets": [...]}``).
        targets: from `analysis.comparison.time_to_target.compare_targets`; None: not measured.

    Raises `ExperimentError` for another format.
    """
    require_format(format, "text", "markdown", "csv", "latex", "json")
    if format == "json":
        return _json(frame, targets)
    renderers: dict[str, Callable[[pd.DataFrame], str]] = {"text": _text, "markdown": _markdown, "csv": csv}
    found = (renderers | {"latex": _latex})[format](frame)
    below = "" if targets is None or format == "csv" else target_table.render(targets, format)
    return f"{found}\n{below}" if below else found


def _text(frame: pd.DataFrame) -> str:
    first = {cost.heading: cost.in_columns() for cost in _costs(frame, _COSTS)}
    second = {
        **_pairs(frame),
        "Done/skip/abort": _round_counts(frame),
        **{cost.heading: cost.in_columns() for cost in _costs(frame, _result_costs(frame))},
        **_quality(frame),
    }
    room = min(
        WIDTH - sum(max(map(len, [heading, *cells])) + 2 for heading, cells in columns.items())
        for columns in (first, second)
    )
    width = max(room, _SHORTEST_LABEL)
    labels = [label if len(label) <= width else label[: width - 1] + "…" for label in map(visible, frame["label"])]
    tables = [
        Table(
            heads=["Protocol", *columns],
            rows=list(zip(labels, *columns.values(), strict=True)),
            left=[0],
            sections=_settings(frame),
        )
        for columns in (first, second)
    ]
    lines = [line for note in notes(frame) for line in textwrap.wrap(visible(note), WIDTH, break_on_hyphens=False)]
    return "\n".join([*(render_table(table, "text") for table in tables), *lines]) + "\n"


def _markdown(frame: pd.DataFrame) -> str:
    several = frame["setting"].ne("").any()
    columns: Columns = {"Setting": frame["setting"].tolist()} if several else {}
    columns["Protocol"] = frame["label"].tolist()
    for cost in _costs(frame, [*_COSTS, *_result_costs(frame)]):
        columns[cost.heading] = [
            mean + (f" ± {half}" if half else "") + (f" ({ratio})" if ratio else "") for mean, half, ratio in cost.cells
        ]
    columns |= _pairs(frame)
    columns |= {"Done/skipped/aborted": _round_counts(frame), **_quality(frame)}
    table = Table(list(columns), list(zip(*columns.values(), strict=True)), left=[0, 1] if several else [0])
    return f"{render_table(table, 'markdown')}\n{markdown(' '.join(notes(frame)))}\n"


def _json(frame: pd.DataFrame, targets: pd.DataFrame | None) -> str:
    names = _baselines(frame)
    below: list[Any] | pd.DataFrame = [] if targets is None else targets
    return to_json({"baseline": names[0] if len(names) == 1 else names, "rows": frame, "targets": below})


def _latex(frame: pd.DataFrame) -> str:
    """For a document that loads booktabs (UTF-8 labels): two tables, one below the other, in one float.

    Time and traffic of server and client, as in Lotto's Table 2; then what the rounds gave.
    """
    first, second = _costs(frame, _COSTS), _costs(frame, _result_costs(frame))
    pairs, quality = _pairs(frame), _quality(frame)
    costs = _tabular(
        frame,
        [f"{who} [{cost.symbol}]" for who, cost in zip(("Server", "Client") * 2, first, strict=True)],
        first,
        spans=(("", 1), ("Time", 4), ("Network", 4)),
    )
    results = _tabular(
        frame,
        [cost.heading for cost in second],
        second,
        before={**pairs, "Done/skip/abort": _round_counts(frame)},
        after={head if len(head) > 1 else f"${head}$": cells for head, cells in quality.items()},
    )
    return "\n".join(
        [
            r"% needs \usepackage{booktabs}",
            r"\begin{table*}",
            r"\centering\footnotesize\setlength{\tabcolsep}{5pt}",
            rf"\caption{{Time and traffic of a round. {latex(' '.join(notes(frame)))}}}",
            r"\label{tab:overhead}\smallskip",
            costs + r"\par\medskip",
            results + r"\end{table*}",
            "",
        ]
    )


def _tabular(
    frame: pd.DataFrame,
    heads: Sequence[str],
    costs: Sequence["_CostColumn"],
    spans: Sequence[tuple[str, int]] = (),
    before: Columns | None = None,
    after: Columns | None = None,
) -> str:
    """The costs under their heads, each in two columns: mean and half-width, and the ratio; between other columns."""
    before, after = before or {}, after or {}
    columns = []
    for cost in costs:
        columns.append([mean + (f" ± {half}" if half else "") for mean, half, _ in cost.cells])
        columns.append([ratio for _, _, ratio in cost.cells])
    rows = list(zip(frame["label"], *before.values(), *columns, *after.values(), strict=True))
    heads = ["Protocol", *before, *(rf"\multicolumn{{2}}{{c}}{{{head}}}" for head in heads), *after]
    return render_table(Table(heads, rows, left=[0], spans=spans, sections=_settings(frame)), "latex")


# -- cells: scaled units, percentages ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _CostColumn:
    """A measured column in one unit for all rows.

    Attributes:
        heading: e.g. ``"Round time [s]"``.
        symbol: of the unit.
        cells: mean, half-width and ratio (with ×) of each row; empty where there is none.
    """

    heading: str
    symbol: str
    cells: list[tuple[str, str, str]]

    def in_columns(self) -> list[str]:
        """Means, half-widths and ratios one below the other."""
        rows = [(mean, f"±{half}" if half else "", ratio) for mean, half, ratio in self.cells]
        widths = [max(map(len, part)) for part in zip(*rows, strict=True)]
        return [" ".join(part.rjust(width) for part, width in zip(row, widths, strict=True) if width) for row in rows]


def _costs(frame: pd.DataFrame, names: Iterable[str]) -> list[_CostColumn]:
    """The columns `names` of the frame: keys of `_COSTS`, `_COSTS_PER_UPDATE` or `_TRANSPORT`."""
    found = []
    for name in names:
        unit = (bytes_unit if "bytes" in name else seconds_unit)(frame[name].dropna().tolist())
        cells = [
            (_MISSING if pd.isna(mean) else unit.number(mean), "" if pd.isna(half) else unit.number(half), ratio)
            for mean, half, ratio in zip(frame[name], frame[f"{name}_half_width"], _ratios(frame, name), strict=True)
        ]
        heading = (_COSTS | _COSTS_PER_UPDATE | _TRANSPORT)[name]
        found.append(_CostColumn(f"{heading} [{unit.symbol}]", unit.symbol, cells))
    return found


def _ratios(frame: pd.DataFrame, name: str) -> list[str]:
    """Ratios to the baseline, with the half-widths of their own intervals where the rounds are paired."""
    halves = frame.get(f"{name}_ratio_half_width", pd.Series(float("nan"), frame.index))
    cells = []
    for ratio, half, base in zip(frame[f"{name}_ratio"], halves, frame["is_baseline"], strict=True):
        cell = "" if pd.isna(ratio) else f"{ratio:.3f}" if ratio < 100 else f"{ratio:.1f}"
        cell += "" if base or pd.isna(half) else f"±{half:.3f}"
        cells.append(f"{cell}×" if cell else "")
    return cells


def _is_paired(frame: pd.DataFrame) -> bool:
    """Whether the frame is one of `analysis.comparison.overhead.compare_paired`."""
    return "pairs" in frame


def _pairs(frame: pd.DataFrame) -> Columns:
    """How many rounds were paired, and in how many of them the same happened to the same; empty without pairs."""
    if not _is_paired(frame):
        return {}
    identical = [f"{same}/{pairs}" for same, pairs in zip(frame["pairs_identical"], frame["pairs"], strict=True)]
    return {"Pairs": frame["pairs"].astype(str).tolist(), "Identical": identical}


def _result_costs(frame: pd.DataFrame) -> list[str]:
    """Costs that stand with the results: those per update where a round has failed, and transport overhead if any."""
    per_update = _COSTS_PER_UPDATE if _has_failures(frame) else ()
    return [*per_update, *(_TRANSPORT if (frame["transport_bytes"] > 0).any() else ())]


def _has_failures(frame: pd.DataFrame) -> bool:
    """Whether a round was skipped or aborted, so that the costs per update say something of their own."""
    return not _is_paired(frame) and bool((frame[["rounds_skipped", "rounds_aborted"]] > 0).any(axis=None))


def _quality(frame: pd.DataFrame) -> Columns:
    """Accuracy, perplexity (where a language model was measured), F, C and T by heading."""
    perplexity = frame["final_perplexity"]
    return {
        "Accuracy": _formatted(100 * frame["final_accuracy"], "{:.1f}%"),
        **({"Perplexity": _formatted(perplexity, "{:.1f}")} if perplexity.notna().any() else {}),
        "F": _formatted(frame["fairness_gap"], "{:.3f}"),
        "C": _formatted(frame["aggregation_cardinality"], "{:.2f}"),
        "T": _privacy(frame),
    }


def _formatted(values: pd.Series, form: str) -> list[str]:
    return [_MISSING if pd.isna(value) else form.format(value) for value in values]


def _privacy(frame: pd.DataFrame) -> list[str]:
    """T, or what is proved of it."""
    name = "multi_round_privacy_weak"
    known = frame[name].notna() & frame[f"{name}_certified"].fillna(False)
    proved = _formatted(frame[f"{name}_lower_bound"], "≥{}")
    return [str(value) if sure else bound for value, sure, bound in zip(frame[name], known, proved, strict=True)]


def _unfinished(frame: pd.DataFrame) -> pd.Series:
    """Which rows have had fewer rounds than were planned."""
    few: pd.Series = frame[_ROUNDS].sum(axis=1) < frame["rounds_planned"]
    return few


def _round_counts(frame: pd.DataFrame) -> list[str]:
    """Rounds completed, skipped and aborted, e.g. ``"9/0/1"``, or ``"4/0/1 of 10"`` when not all have been run."""
    rows = zip(*(frame[name] for name in _ROUNDS), _unfinished(frame), frame["rounds_planned"], strict=True)
    return ["/".join(map(str, counts)) + (f" of {planned}" if few else "") for *counts, few, planned in rows]


def _settings(frame: pd.DataFrame) -> dict[int, str]:
    """The settings in the order of the table, by the row at which each begins."""
    names = frame["setting"].tolist()
    return {row: name for row, name in enumerate(names) if row == 0 or names[row - 1] != name}


def _baselines(frame: pd.DataFrame) -> list[str]:
    """The labels of the baselines, each once."""
    return list(dict.fromkeys(frame["baseline"].dropna()))


# -- what to know about the numbers -----------------------------------------------------------------------------------


def notes(frame: pd.DataFrame) -> list[str]:
    """What a reader needs to know about the numbers, a sentence or two each."""
    seeds = sorted(set(frame["seeds"]))
    over = "rounds" if seeds == [1] else f"{seeds[0]} seeds" if len(seeds) == 1 else "seeds (or rounds, if one seed)"
    lines = [f"Means over completed rounds ± half-width of the 95% interval over {over}."]
    if _is_paired(frame):
        lines = _pair_notes(frame, over)
    elif _baselines(frame):
        lines[0] = f"{lines[0][:-1]}; × is the ratio to {' / '.join(_baselines(frame))}."
    if (_unfinished(frame) & (frame["stopped"] < frame["seeds"])).any():
        lines.append("Unfinished, of so many rounds planned: the numbers of such a row are those of its rounds so far.")
    for why in dict.fromkeys(why for why in frame["stopped_at"] if why):
        who = ", ".join(dict.fromkeys(frame.loc[frame["stopped_at"] == why, "label"]))
        lines.append(f"Stopped at the {why}, after so many of the rounds planned: {who}.")
    lines += _trouble_notes(frame)
    if "privacy_caveats" in frame:
        for said in dict.fromkeys(one for one in frame["privacy_caveats"] if one):
            who = ", ".join(dict.fromkeys(frame.loc[frame["privacy_caveats"] == said, "label"]))
            lines.append(f"Privacy of {who}: {said}.")
    if _has_failures(frame):
        lines.append("Per update: what all rounds took, skipped and aborted ones included, per completed round.")
    if "transport_bytes" in _result_costs(frame):
        lines.append(
            "Overhead: headers, acknowledgements, handshakes, what is sent again; not in the server's traffic."
        )
    lines.append(
        "Accuracy: last measured. F: aggregation fairness gap. C: mean number of updates in the sum, over all rounds."
    )
    privacy = (
        "T: fewest users whose sum the server can compute from the sums of these rounds (weak multi-round privacy)"
    )
    bounded = any(cell.startswith("≥") for cell in _privacy(frame))
    lines.append(f"{privacy}; ≥: proved, the search did not end." if bounded else f"{privacy}.")
    if (frame["aggregation"] == "plain").any():
        lines.append("With plain aggregation the server sees each update alone, whatever T says of the sums.")
    return lines


def _trouble_notes(frame: pd.DataFrame) -> list[str]:
    """Why rounds did not complete, crashes, and a machine that could not keep up."""
    lines = []
    if ends := [f"{name}: {reasons}" for name, reasons in _named(frame, "reasons")]:
        lines.append(f"Not completed: {'; '.join(ends)}.")
    if refused := [f"{name}: {told}" for name, told in _named(frame, "unexpected_refusals")]:
        lines.append(f"Nobody was to be dishonest, and yet there were refusals. {'; '.join(refused)}.")
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


def _pair_notes(frame: pd.DataFrame, over: str) -> list[str]:
    base = " / ".join(_baselines(frame))
    lines = [
        f"Means over the rounds that {base or 'the baseline'} completed too, matched by number, ± half-width of the "
        f"95% interval over {over}; × is the ratio to its mean over the same rounds, ± that of the paired ratio.",
        "Identical: pairs in which the same clients took part and the same of them were offline or dropped out.",
    ]
    if (frame["pairs_same_stages"] < frame["pairs_identical"]).any():
        lines[-1] = lines[-1][:-1] + ", in other stages for some."
    return lines
