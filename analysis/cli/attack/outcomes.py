"""``testbed attack``: evaluation of recorded attacks, and attacks tried on a server's view of a run."""

import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from analysis.cli.results import Directories, TableFormat, runs_in
from testbed.cli.invocation import (
    Debug,
    ExperimentFile,
    ImportClasses,
    Overrides,
    Quiet,
    argument,
    check_folder,
    examples,
    flag,
    group,
    option,
    runs_code,
    yaml_quote,
)
from testbed.cli.terminal import echo, messages
from testbed.errors import ExperimentError
from testbed.signals import stop_code

attack = group(name="attack", help="Evaluate attacks by malicious servers and dishonest clients; attack recorded runs.")

_SUMMARY_EPILOG = examples(
    "testbed attack summary runs/adversary",
    "testbed attack summary runs/adversary --eta 3 --format json",
    then="The runs need an `adversary:` section in the experiment.",
)

_MODELS_EPILOG = examples(
    "testbed attack models runs/crafted-models",
    "testbed attack models runs/crafted-models --format markdown",
    then="The runs need adversary.server: send-different-models or send-crafted-model, and records: {aggregates: all}.",
)

_REGISTRATIONS_EPILOG = examples("testbed attack registrations examples/adversary.yaml")


@attack.command(epilog=_SUMMARY_EPILOG)
def summary(
    directories: Directories,
    eta: Annotated[
        float, typer.Option(help="Factor eta in x/s > eta c/n: x of s participants and c of n clients are dishonest.")
    ] = 2.0,
    format: TableFormat = "text",
    debug: Debug = False,
) -> None:
    """Print the refused attacks by failed check, and the effect of undetected attacks on the selection."""
    runs = runs_in(directories)
    from analysis.attacks import outcomes

    echo(outcomes.render(outcomes.adversaries(runs, eta), format), nl=False)


@attack.command(epilog=_MODELS_EPILOG)
def models(
    directories: Directories,
    format: Annotated[Literal["text", "markdown", "json"], typer.Option(help="json holds every column.")] = "text",
    import_classes: ImportClasses = False,
    debug: Debug = False,
) -> None:
    """Print the results of attacks by other models: the victim's update or the training samples that were recovered.

    The truth is the update, trained again, and the clients' data.
    """
    runs = runs_in(directories)
    from analysis.attacks import other_models

    echo(other_models.render(other_models.other_models(runs), format), nl=False)


@attack.command(epilog=_REGISTRATIONS_EPILOG)
def registrations(
    file: Annotated[Path, argument("FILE", "An experiment file.")],
    overrides: Overrides = None,
    import_classes: ImportClasses = False,
    debug: Debug = False,
) -> None:
    """Test attacks on registration: a second registration, another client's key, a more favourable key.

    The dishonest clients of the experiment attack a real PKI. Of a sweep, the first point is used.
    """
    from analysis.tables import Table, render
    from testbed.adversary.registration import attempts
    from testbed.engine.plan import RunPlan
    from testbed.experiment import load
    from testbed.experiment.inputs import refuse_unless_imported
    from testbed.experiment.schema import points

    experiment = next(points(load(file, overrides or []), str(file))).experiment
    refuse_unless_imported([experiment], str(file), import_classes)
    plan = RunPlan(experiment, 0)
    population = plan.experiment.population
    if not 0 < len(plan.dishonest) < population:
        raise ExperimentError(
            f"{file}: adversary.dishonest: {len(plan.dishonest)} of {population} clients; at least one must be "
            "dishonest and one honest"
        )
    rows = [
        [attempt.name, str(attempt.tried), str(attempt.refused), ", ".join(attempt.checks) or "–", attempt.gained]
        for attempt in attempts(population, plan.dishonest, plan.randomness)
    ]
    echo(render(Table(["Attack", "Attempts", "Refused", "Failed check", "Gain"], rows, ruled=False), "text"), nl=False)


_AUDIT_EPILOG = examples(
    "testbed attack audit runs/audit",
    "testbed attack audit runs/audit --figures figures",
    "testbed attack audit runs/audit --observer outsider --confidence 0.99 --format json",
    then="The runs need privacy.canaries (examples/audit.yaml). The server's view also needs records.aggregates: all.",
)


@attack.command(epilog=_AUDIT_EPILOG)
def audit(
    directories: Directories,
    observer: Annotated[
        Literal["server", "outsider", "both"],
        typer.Option(
            help="The party that guesses: the server sees sums and their participants, an outsider the models."
        ),
    ] = "both",
    confidence: Annotated[float, option("C", "Confidence of each bound.", min=0.5, max=0.9999999)] = 0.95,
    figures: Annotated[Path | None, option("DIR", "Also draw the bounds, as PNG and PDF.")] = None,
    format: Annotated[Literal["text", "markdown", "json"], typer.Option(help="json holds every column.")] = "text",
    import_classes: ImportClasses = False,
    debug: Debug = False,
) -> None:
    """Audit privacy: a lower bound on epsilon, from guesses of the inserted canaries by a party's recorded view.

    The table also has the ledger's achieved and planned epsilon, and the guarantee of the selection.
    """
    runs = runs_in(directories)
    if figures is not None:
        check_folder("--figures", figures)
    from analysis.privacy import audit_report
    from analysis.privacy.audit import OBSERVERS, audits

    results = audits(runs, OBSERVERS if observer == "both" else (observer,), confidence)
    echo(audit_report.rendered(results, format, confidence), nl=False)
    if figures is not None:
        messages().print(f"written: {', '.join(map(str, audit_report.draw(results, figures)))}")


_SURVEY_EPILOG = examples(
    "testbed attack survey examples/threats.yaml",
    "testbed attack survey examples/threats.yaml --set selection.protocol=lotto-server-centric",
    "testbed attack survey examples/threats.yaml --only forge-output --only list-twice --out runs/survey",
    then="Misbehaviours in the experiment's `adversary` section are added to every run.",
)


@attack.command(epilog=_SURVEY_EPILOG)
@runs_code
def survey(
    file: ExperimentFile,
    overrides: Overrides = None,
    only: Annotated[list[str] | None, option("NAME", "Run this misbehaviour; may be repeated. Default: all.")] = None,
    out: Annotated[Path | None, option("DIR", "Keep the runs here. Default: they are not kept.")] = None,
    network: Annotated[
        Literal["ray", "in-process"], typer.Option(help="in-process: no Ray, everything in this process.")
    ] = "in-process",
    resume: Annotated[bool, flag("Resume the runs in --out.", "--resume")] = False,
    format: Annotated[Literal["text", "markdown", "json"], typer.Option(help="Output format.")] = "text",
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Try every misbehaviour that applies to an experiment's protocols; print the check or bound that stops it.

    Results: refused (a check of an honest party failed), bounded (undetected, limited by a theorem), not protected.
    """
    from testbed.experiment import load

    experiment = load(file, [*(overrides or []), f"cluster.network={yaml_quote(network)}"])
    from analysis.attacks.survey import findings, render, survey_of, trials
    from testbed.cli.progress import display_for
    from testbed.records import RunRecords
    from testbed.running import run_all

    tried = trials(experiment, only or [], str(file))
    console = messages()
    try:
        with tempfile.TemporaryDirectory() as folder, display_for(console, quiet) as observer:
            directory = out or Path(folder)
            sweep = survey_of(experiment, tried, str(file))
            paths = run_all(
                sweep, directory / "survey" if out is None else out, where=str(file), resume=resume, observer=observer
            )
            printed = render(findings(experiment, tried, [RunRecords(path) for path in paths]), format)
    except KeyboardInterrupt:
        console.print("stopped; an unfinished survey prints nothing (--out DIR keeps its runs)")
        raise typer.Exit(stop_code()) from None
    echo(printed, nl=False)


_RECONSTRUCT_EPILOG = examples(
    "testbed attack reconstruct runs/sums/random --from 301 --to 340",
    "testbed attack reconstruct runs/sums/random --from 301 --to 340 --out figures --format json",
    then="The run must have recorded its aggregates: `records: {aggregates: [301, 340]}` in the experiment.",
)

_INVERT_EPILOG = examples(
    "testbed attack invert runs/pictures/random --round 1 --client 13 --out figures",
    "testbed attack invert runs/pictures/batch-partition,privacy=4 --round 1 --client 13 --alone",
    then="The attack works best if clients take one step on few images (FedSGD): the update is a gradient.",
)

_DISAGGREGATE_EPILOG = examples(
    "testbed attack disaggregate runs/disaggregation/random --from 301 --to 360",
    "testbed attack disaggregate runs/disaggregation/random --from 301 --to 360 --window 20 --format json",
    then="Needs more completed rounds than clients, and recorded aggregates: records: {aggregates: [301, 360]}.",
)

Run = Annotated[str, argument("RUN", "The directory of a run, also s3://, gs://.")]
First = Annotated[int, option("R", "First round.", "--from", min=1)]
Last = Annotated[int, option("R", "Last round.", "--to", min=1)]
Out = Annotated[Path | None, option("DIR", "Also write tables and figures.")]
Format = Annotated[Literal["text", "json"], typer.Option(help="json is one flat object at full precision.")]


@attack.command(epilog=_RECONSTRUCT_EPILOG)
def reconstruct(
    directory: Run,
    first: First,
    last: Last,
    out: Out = None,
    format: Format = "text",
    import_classes: ImportClasses = False,
    debug: Debug = False,
) -> None:
    """Estimate single updates from a run's sums (least squares), and print the errors.

    So et al., Multi-RoundSecAgg, appendix H.2. The truth is each client's update from the model of the first round,
    trained again.
    """
    from analysis.attacks import reconstruction_output as report
    from analysis.attacks.reconstruction import reconstruct as reconstructed
    from analysis.tables import to_json

    if out is not None:
        check_folder("--out", out)
    made = reconstructed(one_run(directory), first, last)
    echo(to_json(report.row(made), ascii=True) if format == "json" else report.text(made), nl=False)
    if out is not None:
        console = messages()
        for path in report.files(made, out):
            console.print(f"written: {path}")


@attack.command(epilog=_DISAGGREGATE_EPILOG)
def disaggregate(
    directory: Run,
    first: First,
    last: Last,
    window: Annotated[
        int, option("R", "Rounds per window; the attacker knows each client's participations per window.", min=1)
    ] = 10,
    time_limit: Annotated[float, option("SECONDS", "Time limit for each client's search.", min=0.1)] = 20.0,
    format: Format = "text",
    import_classes: ImportClasses = False,
    debug: Debug = False,
) -> None:
    """Infer the participants of each sum from each client's counts of participations, and estimate updates.

    Lam et al., Gradient Disaggregation, arXiv 2106.06089: for observers that do not know the participants.
    """
    from analysis.attacks.disaggregation import disaggregate as attacked
    from analysis.tables import to_json

    made = attacked(one_run(directory), first, last, window, time_limit)
    echo(to_json(made.row(), ascii=True) if format == "json" else made.text(), nl=False)


@attack.command(epilog=_INVERT_EPILOG)
def invert(
    directory: Run,
    first: Annotated[int, option("R", "Round of the model that the update starts from.", "--round", min=1)],
    client: Annotated[int, option("I", "Number of the attacked client.", min=0)],
    last: Annotated[
        int | None, option("R", "Last round to use the sum of.  \\[default: the last]", "--to", min=1)
    ] = None,
    iterations: Annotated[int, option("N", "Optimisation steps per search.", min=1)] = 1000,
    starts: Annotated[int, option("N", "Number of searches; the best one is printed.", min=1)] = 2,
    smoothness: Annotated[float, option("L", "Weight of the total variation in the loss.", min=0)] = 1e-3,
    alone: Annotated[
        bool, flag("Use the mean update of the victim's batch as its update, as the paper does.", "--alone")
    ] = False,
    out: Out = None,
    format: Format = "text",
    import_classes: ImportClasses = False,
    debug: Debug = False,
) -> None:
    """Estimate a client's update from a run's sums (least squares), and search for images with its gradient.

    Geiping et al., Inverting Gradients, arXiv 2003.14053. The result is compared with the client's images.
    """
    from analysis.attacks import inversion as report
    from analysis.tables import to_json

    run = one_run(directory)
    if out is not None:
        check_folder("--out", out)
    population = int(run.experiment["population"])
    if client >= population:
        raise ExperimentError(f"--client: {client}; there are {population} clients, numbered from 0")
    inverter = report.Inverter(run, first, len(run.rounds) if last is None else last)
    made = inverter.invert(client, report.Search(iterations, starts, smoothness=smoothness), alone=alone)
    echo(to_json(report.row(made), ascii=True) if format == "json" else report.text(made), nl=False)
    if out is not None:
        console = messages()
        for path in report.pictures([(f"client {client}", made)], out / f"client-{client}"):
            console.print(f"written: {path}")


def one_run(directory: str) -> Any:
    """Return the run in a directory; raise `ExperimentError` unless there is exactly one."""
    runs = runs_in([directory])
    if len(runs) > 1:
        names = ", ".join(run.path.name for run in runs[:4])
        raise ExperimentError(f"{directory}: has {len(runs)} runs; give the directory of one of them ({names})")
    return runs[0]
