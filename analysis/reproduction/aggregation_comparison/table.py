"""Comparison of secure aggregation: time by phase, bytes, stages, rounds, and the attacks that each protocol
withstands.

plain, secagg (Bonawitz et al., CCS 2017), secagg-plus (Bell et al., CCS 2020), lightsecagg (So et al., MLSys 2022),
flamingo (Ma et al., S&P 2023) and one-shot (Karthikeyan and Polychroniadou, CRYPTO 2025) run under the same conditions:
clients that are always available, phones on three kinds of links, and dropouts. The number of participants, the length
of the vector, and the corrupted share of the participants vary, too.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.plot_data import plot_data
from analysis.reproduction.aggregation_comparison.claims import claims
from analysis.reproduction.aggregation_comparison.conditions import (
    CORRUPTION,
    DROPOUT_MARGIN,
    PHONE_LINKS,
    PHONES_A_PARTICIPANT,
    SIZES,
    Condition,
    Size,
    experiment,
)
from analysis.reproduction.aggregation_comparison.measures import promised, row
from analysis.reproduction.aggregation_comparison.protocols import MEMBERS, PROTOCOLS, ComparedProtocol, ProtocolSetting
from analysis.reproduction.aggregation_comparison.withstood import (
    PARTICIPANTS,
    ROUNDS,
    in_words,
    not_protected,
    withstood,
)
from analysis.reproduction.contract import Reproduction, ReproductionContext, ReproductionResult
from analysis.style import SERIES_COLOURS, house_style, save, width

_COUNTS = ("n", "stages", "questions", "may be lost", "least sum")
_NOT_SHOWN = ("dropout", "T", "completed", "aborted", "skipped")


def run_comparison(context: ReproductionContext) -> ReproductionResult:
    """Run all protocols under all conditions at the context's scale."""
    size = SIZES[context.scale]
    rows: list[dict[str, Any]] = []
    for condition in size.conditions():
        for compared in PROTOCOLS:
            context.progress(f"{compared.protocol}, {condition.varied} {condition.value}".strip())
            directory = context.out / "runs" / condition.directory / compared.protocol
            (run,) = context.run_experiment(experiment(size, condition, compared), directory)
            rows.append({**_place(condition, compared), **row(run, compared), **promised(run)})
    surveys = {}
    for compared in PROTOCOLS:
        context.progress(f"what {compared.protocol} withstands")
        surveys[compared.protocol] = withstood(context, compared)
    frame = pd.DataFrame.from_records(rows)
    return ReproductionResult(
        _shown(frame.assign(**{"not protected": [not_protected(surveys[name]) for name in frame["protocol"]]})),
        figures=draw(frame, context.out / "generations"),
        claims=claims(frame),
        remarks=[*_remarks(size), *(in_words(compared, surveys[compared.protocol]) for compared in PROTOCOLS)],
    )


def _shown(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table for people: columns that name the rows, times and bytes, then counts as text."""
    counts = [f"{row.completed}/{row.aborted}/{row.skipped}" for row in frame.itertuples()]
    frame = frame.assign(rounds=counts)
    for name in _COUNTS:
        frame[name] = [None if pd.isna(count) else f"{count:.0f}" for count in frame[name]]
    keys = ["varied", "value", "protocol"]
    measures = [name for name in frame if frame[name].dtype.kind == "f" and name not in _NOT_SHOWN]
    texts = [name for name in frame if name not in (*keys, *measures, *_NOT_SHOWN)]
    return frame[[*keys, *measures, *texts]]


def unshown(table: pd.DataFrame) -> pd.DataFrame:
    """Invert `_shown`, so that claims can be computed from a kept table.

    Args:
        table: table of a kept result.

    Returns:
        The same rows with counts as numbers and the columns of `_NOT_SHOWN`. Of these, dropouts and T follow from the
        row's condition.
    """
    outcomes = table["rounds"].str.split("/", expand=True).astype(int)
    frame = table.assign(**{name: outcomes[place] for place, name in enumerate(("completed", "aborted", "skipped"))})
    for name in _COUNTS:
        frame[name] = pd.to_numeric(frame[name])
    frame["dropout"] = [_rate(row, "dropout", 0.0) for _, row in frame.iterrows()]
    frame["T"] = [
        ProtocolSetting(int(row["n"]), DROPOUT_MARGIN, _rate(row, "corruption", CORRUPTION)).corrupted
        for _, row in frame.iterrows()
    ]
    return frame


def _rate(row: "pd.Series[Any]", varied: str, otherwise: float) -> float:
    """Return the rate in a row's condition, such as "30%", if the condition varies this quantity."""
    return int(row["value"].rstrip("%")) / 100 if row["varied"] == varied else otherwise


def _place(condition: Condition, compared: ComparedProtocol) -> dict[str, Any]:
    return {
        "varied": condition.varied,
        "value": condition.value,
        "protocol": compared.protocol,
        "n": condition.setting.participants,
        "dropout": condition.dropout,
        "T": condition.setting.corrupted,
    }


def _remarks(size: Size) -> list[str]:
    phones = "; ".join(f"{name} {down:g}, {up:g}, {ms:g}" for name, (down, up, ms) in PHONE_LINKS.items())
    sources = "; ".join(f"{compared.protocol}: {compared.source}" for compared in PROTOCOLS)
    return [
        f"Protocols and their papers: {sources}.",
        f"{size.rounds} rounds of each run (rounds: completed/aborted/skipped). Compute is modelled on one core of "
        "the reference machine. Training is simulated (training: simulated): its time is charged and it is not "
        "executed, which changes no time and no byte. Means are over completed rounds; bytes are those of the "
        "aggregation alone.",
        f"Each protocol is set up for {CORRUPTION:.0%} of the participants corrupted, unless this share is varied, "
        f"and for {DROPOUT_MARGIN:.0%} more dropouts than occur on average, or for as many as it can be. secagg has "
        "the smallest threshold that is safe. Participants drop out when they are asked for the masked update.",
        f"flamingo and one-shot have a committee of {MEMBERS} clients, or of all if there are fewer, with the least "
        "threshold that is safe if all corrupted clients are members. flamingo's committee serves in all rounds, and "
        "its set-up is counted (set-up, in the first round alone); one-shot's committee serves in one round. On "
        "phones it is drawn by sortition from the clients that are online. The traffic and compute of a committee "
        "count as the participants'. Questions: the fewest questions to a participant in a completed round.",
        "Phases: the stages before the masked update, its own stage, and the stages after it. The server's work of a "
        "phase is its work after the end of one of the phase's stages. Elapsed seconds are the round's, by phase; a "
        "round also has selection, the broadcast of the model, and training.",
        f"Phones: {PHONES_A_PARTICIPANT} for each participant, a quarter of them online at a time (diurnal-weibull), "
        f"20 times slower than the reference machine; Mbit/s down, up and ms one way (medians): {phones}. These are "
        "round numbers, not measurements.",
        "Published seconds are of other machines, languages and networks, so they are not compared with ours; the "
        "papers' statements about growth and bytes are.",
        f"Attacks withstood are from the survey of the threat model: {PARTICIPANTS} participants, {ROUNDS} rounds, "
        "the same corruption, set up for up to half of the participants lost. Misbehaviours that concern selection "
        "alone, or send one crafted model to all, are left out. `may collude` is the protocol's guarantee with a "
        "malicious server; none: that server sees updates. Outcomes of the misbehaviours:",
    ]


def draw(frame: pd.DataFrame, path: Path) -> Sequence[Path]:
    """Draw client time and traffic against n, server time against dropouts, and round time on phones.

    Args:
        frame: rows of the table.
        path: path of the files, without extension.
    """
    names = list(dict.fromkeys(frame["protocol"]))
    colours = dict(zip(names, SERIES_COLOURS, strict=False))
    with house_style():
        figure = Figure(figsize=(width(2), 2.2), layout="constrained")
        axes = figure.subplots(1, 4)
        _lines(axes[0], frame, "participants", "client s", colours)
        axes[0].set(title="a", xlabel="Participants", ylabel="Client's work [s]")
        _lines(axes[1], frame, "participants", "MB up", colours)
        axes[1].set(title="b", xlabel="Participants", ylabel="Sent by a client [MB]")
        _lines(axes[2], frame, "dropout", "server s", colours)
        axes[2].set(title="c", xlabel="Dropouts [%]", ylabel="Server's work [s]")
        _bars(axes[3], frame, colours)
        axes[3].set(title="d", xlabel="Links of phones", ylabel="Round [s]", yscale="log")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(names))
        return save(figure, path, plot_data(figure))


def _lines(axes: Axes, frame: pd.DataFrame, varied: str, column: str, colours: dict[str, str]) -> None:
    """Draw lines that include the first condition: at no dropouts, or at its own number of participants."""
    base = frame[frame["varied"] == "always on"]
    for name, colour in colours.items():
        rows = pd.concat([base, frame[frame["varied"] == varied]])
        rows = rows[rows["protocol"] == name].dropna(subset=[column])
        x = rows["n"] if varied == "participants" else 100 * rows["dropout"]
        order = np.argsort(x.to_numpy(), kind="stable")
        axes.plot(x.to_numpy()[order], rows[column].to_numpy()[order], "o-", markersize=3, color=colour, label=name)
    axes.set_ylim(bottom=0)
    axes.grid()


def _bars(axes: Axes, frame: pd.DataFrame, colours: dict[str, str]) -> None:
    phones = frame[frame["varied"] == "phones"]
    links = list(dict.fromkeys(phones["value"]))
    wide = 0.8 / len(colours)
    for place, (name, colour) in enumerate(colours.items()):
        rows = phones[phones["protocol"] == name].set_index("value").reindex(links)
        x = np.arange(len(links)) + (place - (len(colours) - 1) / 2) * wide
        axes.bar(x, rows["round s"], wide, color=colour, label=name)
    axes.set_xticks(range(len(links)), links)
    axes.grid(axis="y")


REPRODUCTIONS = (
    Reproduction(
        "generations",
        "Secure aggregation by generation: time by phase, bytes, stages, aborted rounds, and attacks withstood",
        "Bonawitz et al., ePrint 2017/281; Bell et al., ePrint 2020/704; So et al., arXiv 2109.14236; Ma et al., arXiv "
        "2308.09883; Karthikeyan and Polychroniadou, arXiv 2410.22303",
        run_comparison,
        scales=("small", "real"),
        claims_of=lambda table, seeds: claims(unshown(table)),
    ),
)
