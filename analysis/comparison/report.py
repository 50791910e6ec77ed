"""The overhead table as text, Markdown, CSV, LaTeX or JSON.

Text, Markdown and LaTeX are for people: scaled units, the per-update columns only where a round has failed. CSV and
JSON are for programs: every column of `analysis.comparison.overhead.compare`, in seconds and bytes.
"""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from analysis.tables import WIDTH, Table, Unit, bytes_unit, csv, latex, markdown, require_format, seconds_unit, to_json
from analysis.tables import render as render_table
from testbed.display import visible
from testbed.records.reasons import behind_told, crashes_told

Format = Literal["text", "markdown", "csv", "latex", "json"]
_SHORTEST_LABEL = 16
MISSING = "–"
COSTS = {
    "round_s": "Round time",
    "client_s": "Client time",
    "server_bytes": "Server traffic",
    "client_bytes": "Client traffic",
}
TRANSPORT = {"transport_bytes": "Overhead"}
_ROUNDS = ("rounds_completed", "rounds_skipped", "rounds_aborted")
COSTS_PER_UPDATE = {"round_s_per_update": "Time/update", "server_bytes_per_update": "Traffic/update"}


@dataclass(frozen=True)
class CostColumn:
    """A measured column in one unit for all rows.

    Attributes:
        heading: e.g. ``"Round time [s]"``.
        unit: of all cells.
        cells: mean, half-width and ratio of each row; empty where there is none.
    """

    heading: str
    unit: Unit
    cells: list[tuple[str, str, str]]


def render(frame: pd.DataFrame, format: str = "text") -> str:
    """The table of `analysis.comparison.overhead.compare`, ending in a line feed; the same frame gives the same bytes.

    Args:
        frame: from `compare`, or `analysis.comparison.overhead.compare_paired`.
        format: ``text`` (labels are shortened where 118 columns do not suffice), ``markdown``, ``csv``, ``latex``
            (needs the package booktabs) or ``json`` (``{"baseline": label, or list of labels, "rows": [...]}``).

    Raises `ExperimentError` for another format.
    """
    renderers: dict[str, Callable[[pd.DataFrame], str]] = {"text": _text, "markdown": _markdown, "csv": csv}
    renderers |= {"latex": latex_table, "json": _json}
    require_format(format, *renderers)
    return renderers[format](frame)


def _text(frame: pd.DataFrame) -> str:
    first = _text_costs(cost_columns(frame, list(COSTS)))
    second = {
        **pair_columns(frame),
        "Done/skip/abort": round_counts(frame),
        **_text_costs(cost_columns(frame, result_costs(frame))),
        **quality_columns(frame),
    }
    room = min(
        WIDTH - sum(max(map(len, [heading, *cells])) + 2 for heading, cells in columns.items())
        for columns in (first, second)
    )
    labels = [_shortened(label, max(room, _SHORTEST_LABEL)) for label in map(visible, frame["label"])]
    grids = [
        Table(
            heads=["Protocol", *columns],
            rows=list(zip(labels, *columns.values(), strict=True)),
            left=[0],
            sections=settings(frame),
        )
        for columns in (first, second)
    ]
    lines = [line for note in notes(frame) for line in textwrap.wrap(visible(note), WIDTH, break_on_hyphens=False)]
    return "\n".join([*(render_table(grid, "text") for grid in grids), *lines]) + "\n"


def _shortened(label: str, width: int) -> str:
    return label if len(label) <= width else label[: width - 1] + "…"


def _text_costs(costs: list[CostColumn]) -> dict[str, list[str]]:
    """Each with its means, half-widths and ratios one below the other."""
    return {cost.heading: _text_cost(cost) for cost in costs}


def _text_cost(cost: CostColumn) -> list[str]:
    means, halves, ratios = (list(part) for part in zip(*cost.cells, strict=True))
    halves = [f"±{half}" if half else "" for half in halves]
    ratios = [f"{ratio}×" if ratio else "" for ratio in ratios]
    widths = [max(map(len, part)) for part in (means, halves, ratios)]
    return [
        " ".join(part.rjust(width) for part, width in zip(parts, widths, strict=True) if width)
        for parts in zip(means, halves, ratios, strict=True)
    ]


def _markdown(frame: pd.DataFrame) -> str:
    several = frame["setting"].ne("").any()
    columns: dict[str, list[str]] = {"Setting": frame["setting"].tolist()} if several else {}
    columns["Protocol"] = frame["label"].tolist()
    for cost in cost_columns(frame, [*COSTS, *result_costs(frame)]):
        columns[cost.heading] = [
            mean + (f" ± {half}" if half else "") + (f" ({ratio}×)" if ratio else "")
            for mean, half, ratio in cost.cells
        ]
    columns |= pair_columns(frame)
    columns |= {"Done/skipped/aborted": round_counts(frame), **quality_columns(frame)}
    table = Table(list(columns), list(zip(*columns.values(), strict=True)), left=[0, 1] if several else [0])
    return f"{render_table(table, 'markdown')}\n{markdown(' '.join(notes(frame)))}\n"


def _json(frame: pd.DataFrame) -> str:
    names = baselines(frame)
    return to_json({"baseline": names[0] if len(names) == 1 else names, "rows": frame})


# -- LaTeX ------------------------------------------------------------------------------------------------------------
# Two booktabs tables, one below the other, in one float.


def latex_table(frame: pd.DataFrame) -> str:
    """The table that `analysis.comparison.overhead.compare` made, for a document that loads booktabs (UTF-8 labels)."""
    return "\n".join(
        [
            r"% needs \usepackage{booktabs}",
            r"\begin{table*}",
            r"\centering\footnotesize\setlength{\tabcolsep}{5pt}",
            rf"\caption{{Time and traffic of a round. {latex(' '.join(notes(frame)))}}}",
            r"\label{tab:overhead}\smallskip",
            _costs(frame) + r"\par\medskip",
            _results(frame) + r"\end{table*}",
            "",
        ]
    )


def _costs(frame: pd.DataFrame) -> str:
    """Time and traffic of server and client, as in Lotto's Table 2."""
    costs = cost_columns(frame, list(COSTS))
    heads = [_two_columns(f"{who} [{c.unit.symbol}]") for who, c in zip(("Server", "Client") * 2, costs, strict=True)]
    columns = [column for cost in costs for column in _pairs(cost.cells)]
    return _tabular(frame, heads, columns, spans=(("", 1), ("Time", 4), ("Network", 4)))


def _results(frame: pd.DataFrame) -> str:
    """What the rounds gave."""
    pairs = pair_columns(frame)
    heads, columns = [*pairs, "Done/skip/abort"], [*pairs.values(), round_counts(frame)]
    for cost in cost_columns(frame, result_costs(frame)):
        heads.append(_two_columns(cost.heading))
        columns += _pairs(cost.cells)
    for head, column in quality_columns(frame).items():
        heads.append(head if len(head) > 1 else f"${head}$")
        columns.append(column)
    return _tabular(frame, heads, columns)


def _two_columns(head: str) -> str:
    return rf"\multicolumn{{2}}{{c}}{{{head}}}"


def _pairs(cells: list[tuple[str, str, str]]) -> tuple[list[str], list[str]]:
    """Mean and half-width in one column, the ratio in the next."""
    means = [mean + (f" ± {half}" if half else "") for mean, half, _ in cells]
    return means, [f"{ratio}×" if ratio else "" for _, _, ratio in cells]


def _tabular(
    frame: pd.DataFrame, heads: list[str], columns: list[list[str]], spans: tuple[tuple[str, int], ...] = ()
) -> str:
    rows = list(zip(frame["label"], *columns, strict=True))
    return render_table(Table(["Protocol", *heads], rows, left=[0], spans=spans, sections=settings(frame)), "latex")


# -- cells: scaled units, percentages, and what to know about the numbers ---------------------------------------------


def cost_columns(frame: pd.DataFrame, names: Sequence[str]) -> list[CostColumn]:
    """The columns `names` of the frame (keys of `COSTS`, `COSTS_PER_UPDATE` or `TRANSPORT`)."""
    return [_cost_column(frame, name) for name in names]


def _cost_column(frame: pd.DataFrame, name: str) -> CostColumn:
    unit = (bytes_unit if "bytes" in name else seconds_unit)(frame[name].dropna().tolist())
    cells = []
    for mean, half, ratio in zip(frame[name], frame[f"{name}_half_width"], _ratios(frame, name), strict=True):
        number = MISSING if pd.isna(mean) else unit.number(mean)
        cells.append((number, "" if pd.isna(half) else unit.number(half), ratio))
    return CostColumn(f"{(COSTS | COSTS_PER_UPDATE | TRANSPORT)[name]} [{unit.symbol}]", unit, cells)


def _ratios(frame: pd.DataFrame, name: str) -> list[str]:
    """Ratios to the baseline, with the half-widths of their own intervals where the rounds are paired."""
    cells = [
        "" if pd.isna(ratio) else f"{ratio:.3f}" if ratio < 100 else f"{ratio:.1f}" for ratio in frame[f"{name}_ratio"]
    ]
    if not is_paired(frame) or name not in COSTS:
        return cells
    halves = zip(frame[f"{name}_ratio_half_width"], frame["is_baseline"], strict=True)
    return [
        cell if base or pd.isna(half) else f"{cell}±{half:.3f}"
        for cell, (half, base) in zip(cells, halves, strict=True)
    ]


def is_paired(frame: pd.DataFrame) -> bool:
    """Whether the frame is one of `analysis.comparison.overhead`."""
    return "pairs" in frame


def pair_columns(frame: pd.DataFrame) -> dict[str, list[str]]:
    """How many rounds were paired, and in how many of them the same happened to the same; empty without pairs."""
    if not is_paired(frame):
        return {}
    identical = [f"{same}/{pairs}" for same, pairs in zip(frame["pairs_identical"], frame["pairs"], strict=True)]
    return {"Pairs": frame["pairs"].astype(str).tolist(), "Identical": identical}


def result_costs(frame: pd.DataFrame) -> list[str]:
    """Costs that stand with the results: those per update where a round has failed, and transport overhead if any."""
    per_update = list(COSTS_PER_UPDATE) if has_failures(frame) else []
    return per_update + (list(TRANSPORT) if (frame["transport_bytes"] > 0).any() else [])


def has_failures(frame: pd.DataFrame) -> bool:
    """Whether a round was skipped or aborted, so that the costs per update say something of their own."""
    return not is_paired(frame) and bool((frame[["rounds_skipped", "rounds_aborted"]] > 0).any(axis=None))


def quality_columns(frame: pd.DataFrame) -> dict[str, list[str]]:
    """Accuracy, perplexity (where a language model was measured), F, C and T by heading."""
    accuracy = [MISSING if pd.isna(value) else f"{100 * value:.1f}%" for value in frame["final_accuracy"]]
    perplexity = frame["final_perplexity"]
    return {
        "Accuracy": accuracy,
        **({"Perplexity": _decimals(perplexity, 1)} if perplexity.notna().any() else {}),
        "F": _decimals(frame["fairness_gap"], 3),
        "C": _decimals(frame["aggregation_cardinality"], 2),
        "T": _privacy(frame),
    }


def _decimals(values: pd.Series, decimals: int) -> list[str]:
    return [MISSING if pd.isna(value) else f"{value:.{decimals}f}" for value in values]


def _privacy(frame: pd.DataFrame) -> list[str]:
    """T, or what is proved of it."""
    name = "multi_round_privacy_weak"
    cells = []
    for value, certified, bound in zip(
        frame[name], frame[f"{name}_certified"], frame[f"{name}_lower_bound"], strict=True
    ):
        if not pd.isna(value) and not pd.isna(certified) and certified:
            cells.append(str(value))
        else:
            cells.append(MISSING if pd.isna(bound) else f"≥{bound}")
    return cells


def round_counts(frame: pd.DataFrame) -> list[str]:
    """Rounds completed, skipped and aborted, e.g. ``"9/0/1"``, or ``"4/0/1 of 10"`` when not all have been run."""
    counts = [frame[name] for name in _ROUNDS]
    cells = ["/".join(map(str, row)) for row in zip(*counts, strict=True)]
    few = (frame[list(_ROUNDS)].sum(axis=1) < frame["rounds_planned"]).tolist()
    planned = zip(cells, few, frame["rounds_planned"], strict=True)
    return [f"{cell} of {rounds}" if not_all else cell for cell, not_all, rounds in planned]


def _unfinished(frame: pd.DataFrame) -> list[bool]:
    """Which rows have runs whose rounds are not all run yet, and may be."""
    few = frame[list(_ROUNDS)].sum(axis=1) < frame["rounds_planned"]
    return (few & (frame["stopped"] < frame["seeds"])).tolist()


def settings(frame: pd.DataFrame) -> dict[int, str]:
    """The settings in the order of the table, by the row at which each begins."""
    names = frame["setting"].tolist()
    return {row: name for row, name in enumerate(names) if row == 0 or names[row - 1] != name}


def baselines(frame: pd.DataFrame) -> list[str]:
    """The labels of the baselines, each once."""
    return list(dict.fromkeys(frame["baseline"].dropna()))


def notes(frame: pd.DataFrame) -> list[str]:
    """What a reader needs to know about the numbers, a sentence or two each."""
    seeds = sorted(set(frame["seeds"]))
    over = "rounds" if seeds == [1] else f"{seeds[0]} seeds" if len(seeds) == 1 else "seeds (or rounds, if one seed)"
    lines = [f"Means over completed rounds ± half-width of the 95% interval over {over}."]
    if is_paired(frame):
        lines = _pair_notes(frame, over)
    elif baselines(frame):
        lines[0] = f"{lines[0][:-1]}; × is the ratio to {' / '.join(baselines(frame))}."
    if any(_unfinished(frame)):
        lines.append("Unfinished, of so many rounds planned: the numbers of such a row are those of its rounds so far.")
    if (frame["stopped"] > 0).any():
        who = ", ".join(dict.fromkeys(frame.loc[frame["stopped"] > 0, "label"]))
        lines.append(f"Stopped at the privacy budget, after so many of the rounds planned: {who}.")
    lines += _trouble_notes(frame)
    if "privacy_caveats" in frame:
        for said in dict.fromkeys(one for one in frame["privacy_caveats"] if one):
            who = ", ".join(dict.fromkeys(frame.loc[frame["privacy_caveats"] == said, "label"]))
            lines.append(f"Privacy of {who}: {said}.")
    if has_failures(frame):
        lines.append("Per update: what all rounds took, skipped and aborted ones included, per completed round.")
    if "transport_bytes" in result_costs(frame):
        lines.append("Overhead: headers and acknowledgements of the transport, on top of the server's traffic.")
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
    base = " / ".join(baselines(frame))
    lines = [
        f"Means over the rounds that {base or 'the baseline'} completed too, matched by number, ± half-width of the "
        f"95% interval over {over}; × is the ratio to its mean over the same rounds, ± that of the paired ratio.",
        "Identical: pairs in which the same clients took part and the same of them were offline or dropped out.",
    ]
    if (frame["pairs_same_stages"] < frame["pairs_identical"]).any():
        lines[-1] = lines[-1][:-1] + ", in other stages for some."
    return lines
