"""``testbed bound verifiable-batch-partition``: what whole batches that the server cannot pick guarantee."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from testbed.commands.bound_options import (
    Dishonest,
    Format,
    MinPopulation,
    OverSelection,
    Population,
    Threshold,
    in_options,
    number,
    threshold_of,
)
from testbed.commands.invocation import Debug, examples
from testbed.commands.terminal import echo

_LARGE = "--population 200000 --dishonest 1000 --participants 200"
VERIFIABLE_EPILOG = examples(
    f"testbed bound verifiable-batch-partition {_LARGE} --privacy 5 --over-selection 1.5 --eta 10 --threshold 0.7",
    "testbed bound verifiable-batch-partition --population 120 --dishonest 12 --participants 12 --privacy 3 "
    "--over-selection 2 --dropout 0.1 --format json",
    then="Where the dishonest clients sit is taken at its worst; 'attained' is what some placement reaches.",
)


def bound_verifiable(
    population: Population,
    dishonest: Dishonest,
    participants: Annotated[
        int, typer.Option(metavar="K", min=1, help="Participants of a round, K.", show_default=False)
    ],
    privacy: Annotated[
        int, typer.Option(metavar="T", min=1, help="Batch size T, which divides K.", show_default=False)
    ],
    over_selection: OverSelection = 1.3,
    min_population: MinPopulation = None,
    eta: Annotated[
        float, typer.Option(metavar="E", help="How many times their due share dishonest participants may reach.")
    ] = 10.0,
    threshold: Threshold = "0.7",
    dropout: Annotated[
        float, typer.Option(metavar="P", min=0, max=1, help="Chance that a client does not answer.")
    ] = 0.0,
    format: Format = "text",
    debug: Debug = False,
) -> None:
    """Verifiable batch partition in one round: enough candidate batches, too many dishonest participants, SecAgg
    broken; over many rounds: how many honest members each batch keeps.

    Derived in docs/verifiable-batch-partition.md.
    """
    from analysis.bounds.verifiable_batch_partition import Setting
    from analysis.bounds.verifiable_batch_partition_report import verifiable_bounds
    from analysis.tables import to_json

    with in_options():
        setting = Setting(population, participants, privacy, over_selection, dishonest, min_population)
        row = verifiable_bounds(setting, eta, threshold_of(threshold), dropout)
    echo(to_json(row, ascii=True) if format == "json" else _text(row), nl=False)


_TINY = 1e-300  # what reads 0 is below it
_GIVEN = {
    "population": "n",
    "dishonest": "c",
    "participants": "K",
    "privacy": "T",
    "over_selection": "a",
    "min_population": "n_min",
    "eta": "eta",
    "threshold": "t",
    "dropout": "dropout",
}
_TEXT = {
    "selection_probability": "a batch of {largest_batch} is a candidate",
    "candidates_suffice": "at least {batches_wanted} of {batches} batches are candidates",
    "candidates_suffice_denied": "the same, when {dishonest} batches are denied",
    "dishonest_fraction_exceeds": "more than {dishonest_allowed} of {participants} dishonest",
    "dishonest_fraction_exceeds_random": "- when batches are drawn at random",
    "secagg_fails": "SecAgg fails: more than {dishonest_tolerated} dishonest",
    "secagg_fails_random": "- when batches are drawn at random",
}
_EXACT = ("selection_probability", "candidates_suffice", "candidates_suffice_denied")


def _text(row: Mapping[str, Any]) -> str:
    from analysis.tables import Table, render

    honest = {"fewer_than_2_honest": "some batch has 1 honest member"} if row["privacy"] > 1 else {}
    for least in range(3, row["privacy"] + 1):
        honest[f"fewer_than_{least}_honest"] = f"some batch has 1 to {least - 1} honest members"
    shown = [(label.format_map(row), _value(row, key)) for key, label in (_TEXT | honest).items()]
    given = ", ".join(f"{name} = {number(row[key])}" for key, name in _GIVEN.items())
    return f"{given}\n{render(Table((), shown, ruled=False), 'text')}"


def _value(row: Mapping[str, Any], key: str) -> str:
    """A chance as text; of an enclosed one both sides."""
    if key in _EXACT:
        return number(row[key])
    if key.endswith("_random"):
        return f"at most {number(row[key] or _TINY)}"
    if f"{key}_attained" not in row:
        return f"{number(row[key])}{'  (at most)' if row[f'{key}_by'] == 'union bound' else ''}"
    digits = row[f"{key}_log10"]
    if digits is None:
        return "0  (it cannot happen)"
    most = f"10^{digits:.1f}" if row[key] == 0.0 else number(row[key])
    members = row[f"{key}_attained_members"]
    if row[f"{key}_attained"] == 0.0:
        return f"at most {most}"
    return f"at most {most}  ({number(row[f'{key}_attained'])} with {members} in a batch)"
