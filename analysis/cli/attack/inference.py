"""``testbed attack membership`` and ``testbed attack property``: inference on single clients from a server's sums."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from analysis.cli.results import Directories, TableFormat, runs_in
from testbed.cli.invocation import Debug, ImportClasses, check_folder, examples, option
from testbed.cli.terminal import echo, messages

First = Annotated[int | None, option("R", "First round.  \\[default: the first with aggregates]", "--from", min=1)]
Last = Annotated[int | None, option("R", "Last round.  \\[default: the last with aggregates]", "--to", min=1)]
Confidence = Annotated[float, option("C", "Confidence of each interval.", min=0.5, max=0.9999999)]
Seed = Annotated[int, option("N", "Seed of the attacker's choices.", min=0)]
Figures = Annotated[Path | None, option("DIR", "Also draw it against T, as PNG and PDF.")]

MEMBERSHIP_EPILOG = examples(
    "testbed attack membership runs/inference",
    "testbed attack membership runs/inference --figures figures",
    "testbed attack membership runs/inference/random,no-noise --from 51 --to 100 --samples 200 --format json",
    then="The runs need records.aggregates: all (examples/inference.yaml).",
)
PROPERTY_EPILOG = examples(
    "testbed attack property runs/inference",
    "testbed attack property runs/inference --figures figures",
    "testbed attack property runs/inference/random,no-noise --shadows 200 --format json",
    then="The runs need records.aggregates: all (examples/inference.yaml), and samples with classes.",
)


def membership(
    directories: Directories,
    first: First = None,
    last: Last = None,
    samples: Annotated[int, option("N", "Most members to test; as many others are tested, too.", min=2)] = 300,
    level: Annotated[
        float, option("RATE", "Allowed rate of false positives.", "--false-positives", min=0, max=0.999)
    ] = 0.01,
    confidence: Confidence = 0.95,
    seed: Seed = 0,
    figures: Figures = None,
    format: TableFormat = "text",
    import_classes: ImportClasses = False,
    debug: Debug = False,
) -> None:
    """Infer whether a sample was in a client's training data: from each update, all rounds' sums, one sum, the model.

    Cosine attack of Li et al., ICLR 2023, without shadow models. Beside it T, and the bound by the ledger's epsilon.
    """
    runs = runs_in(directories)
    from analysis.attacks import inference_report as report
    from analysis.attacks.membership_in_sums import membership as attacked

    settings: dict[str, Any] = {"samples": samples, "level": level, "confidence": confidence, "seed": seed}
    _attack(
        runs,
        lambda run: attacked(run, first, last, **settings),
        lambda results: report.membership_table(results, format, confidence),
        report.draw_membership,
        figures,
    )


def property_(
    directories: Directories,
    first: First = None,
    last: Last = None,
    shadows: Annotated[int, option("N", "Data sets that the attacker composes for each round.", min=2)] = 60,
    confidence: Confidence = 0.95,
    seed: Seed = 0,
    figures: Figures = None,
    format: TableFormat = "text",
    import_classes: ImportClasses = False,
    debug: Debug = False,
) -> None:
    """Infer single clients' labels and their shares: from each update, all rounds' sums, or one sum.

    Kerkouche, Acs, Fritz, arXiv 2303.03908: linear detectors of each round, solved over the rounds. Beside it T.
    """
    runs = runs_in(directories)
    from analysis.attacks import inference_report as report
    from analysis.attacks.property_of_sums import property_inference as attacked

    _attack(
        runs,
        lambda run: attacked(run, first, last, shadows=shadows, confidence=confidence, seed=seed),
        lambda results: report.property_table(results, format, confidence),
        report.draw_property,
        figures,
    )


def _attack(
    runs: Sequence[Any],
    attacked: Callable[[Any], Any],
    rendered: Callable[[list[Any]], str],
    draw: Callable[[list[Any], Path], list[Path]],
    figures: Path | None,
) -> None:
    if figures is not None:
        check_folder("--figures", figures)
    results = [attacked(run) for run in runs]
    echo(rendered(results), nl=False)
    if figures is not None:
        messages().print(f"written: {', '.join(map(str, draw(results, figures)))}")
