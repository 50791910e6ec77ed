"""``testbed reproduce``: a table or figure of a paper, reproduced, with the paper's values beside ours."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from testbed.cli.invocation import (
    Debug,
    Invocation,
    Overrides,
    Quiet,
    argument,
    check_folder,
    examples,
    flag,
    option,
    verb,
)
from testbed.cli.terminal import Console, echo, messages
from testbed.errors import ExperimentError
from testbed.signals import stop_code

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from analysis.reproduction.contract import (
        Measurements,
        Origin,
        Reproduction,
        ReproductionContext,
        Scale,
    )
    from testbed.experiment.schema import Experiment
    from testbed.records import RunRecords

REPRODUCE_EPILOG = examples(
    "testbed reproduce --list",
    "testbed reproduce lotto-table2",
    "testbed reproduce lotto-fig4 lotto-fig5 --format markdown",
    "testbed reproduce lotto-table2 --set links.transport=none --out reproductions/without-tcp",
    "testbed reproduce lotto-table2 --scale paper --address HEAD:6379 --out reproductions/table2",
    "testbed reproduce multiround-table5 --data ~/mnist",
    "testbed reproduce multiround-table5 --scale real --data ~/mnist --seeds 1",
    "testbed reproduce all",
    "testbed reproduce --verify",
    then="Finished parts in the directory are not run again: the same command resumes it after Ctrl-C. To repeat "
    "everything, give another --out or delete the directory.",
)


@verb(REPRODUCE_EPILOG)
def reproduce(
    context: typer.Context,
    names: Annotated[list[str] | None, argument("NAME", "Names of tables or figures, or all.")] = None,
    scale: Annotated[
        Literal["small", "real", "paper"],
        typer.Option(
            help="small: minutes on two cores (the usual duration is printed first); "
            "real: the paper's data and model for fewer rounds, hours on two cores; "
            "paper: the paper's settings, for a cluster."
        ),
    ] = "small",
    out: Annotated[
        Path | None,
        option(
            "DIR",
            "Folder of runs, figures and results; default: reproductions/NAME-SCALE; for several names, one each.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        option("DIR", "Folder of real data, where supported (--list names the files); default: built in or generated."),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Repetitions, for reproductions that train; default: the scale's own. A larger number later adds "
            "repetitions.",
        ),
    ] = None,
    address: Annotated[str | None, option("RAY", "A running Ray cluster; default: a new one is started here.")] = None,
    network: Annotated[
        Literal["ray", "in-process"] | None, typer.Option(help="in-process: no Ray, everything in this process.")
    ] = None,
    overrides: Overrides = None,
    listing: Annotated[bool, flag("List the reproductions, and exit.", "--list")] = False,
    verify: Annotated[
        bool,
        flag(
            "Make tables, claims and verdicts again from the kept measurements (with --out: from measurements.json "
            "there), and compare them with the kept results; in a checkout, compare the pages of docs/papers, and look "
            "up the commits. Exits with 1 if something differs.",
            "--verify",
        ),
    ] = False,
    format: Annotated[Literal["text", "markdown", "json"], typer.Option(help="Output format.")] = "text",
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Reproduce a table or figure of a paper: ours beside the paper's, differences, reasons and verdicts on its claims.
    Writes result.md, result.json and table.csv beside the figures and the runs.
    """
    from analysis.reproduction import catalogue, presentation
    from analysis.reproduction.contract import ReproductionContext

    if listing:
        echo(presentation.listed(catalogue.named(names or [catalogue.ALL]), format), nl=False)
        return
    if verify:
        from analysis.reproduction import verification

        every = catalogue.named(names or [catalogue.ALL])
        verified = verification.verify(every, out)
        echo(verification.shown(verified, every, format), nl=False)
        raise typer.Exit(int(bool(verified.differing)))
    if not names:
        raise ExperimentError("NAME: missing; give one, e.g. lotto-table2; `testbed reproduce --list` lists them")
    reproductions = catalogue.named(names)
    _check_scale(reproductions, scale, seeds)
    data = _folder(data, reproductions)
    directories = [_directory(reproduction.name, scale, out, len(reproductions)) for reproduction in reproductions]
    for reproduction, directory in zip(reproductions, directories, strict=True):
        _prepare(reproduction, scale, directory)
    console = messages()
    cluster_options = {"cluster.address": address, "cluster.network": network}
    cluster = {key: value for key, value in cluster_options.items() if value is not None}
    runner = _Runner(cluster, overrides or [], console, quiet)
    try:
        for place, (reproduction, directory) in enumerate(zip(reproductions, directories, strict=True)):
            if place:
                echo("")
            files = data if reproduction.data_files else None
            task = ReproductionContext(scale, directory, runner, _progress(reproduction, runner), files, seeds)
            _make(reproduction, task, format, runner)
    except KeyboardInterrupt:
        invocation: Invocation = context.obj
        console.print(f"stopped; resume with: {invocation.command_line}")
        raise typer.Exit(stop_code()) from None


def _check_scale(reproductions: "list[Reproduction]", scale: "Scale", seeds: int | None) -> None:
    """Raise `ExperimentError` for a scale or a number of seeds that one of the reproductions does not support."""
    lacking = [reproduction for reproduction in reproductions if scale not in reproduction.scales]
    if lacking:
        raise ExperimentError(
            f"--scale {scale}: {', '.join(reproduction.name for reproduction in lacking)}: no such scale; there are "
            f"{' and '.join(lacking[0].scales)}"
        )
    fixed = [reproduction.name for reproduction in reproductions if seeds is not None and not reproduction.takes_seeds]
    if fixed:
        raise ExperimentError(f"--seeds: {', '.join(fixed)}: the repetitions are fixed; leave --seeds out")


def _progress(reproduction: "Reproduction", runner: "_Runner") -> "Callable[[str], None]":
    """Return a function that prints a progress line of one reproduction, unless quiet."""

    def progress(line: str) -> None:
        if not runner.quiet:
            runner.console.print(f"{reproduction.name}: {line}")

    return progress


def _folder(data: Path | None, reproductions: "list[Reproduction]") -> Path | None:
    """Return the absolute folder of real data; raise `ExperimentError` if it is missing, or nothing reads it."""
    if data is None:
        return None
    if not data.is_dir():
        raise ExperimentError(f"--data: {data} is not a folder; give the folder of the files, or leave --data out")
    if not any(reproduction.data_files for reproduction in reproductions):
        raise ExperimentError(
            f"--data: not read by {', '.join(reproduction.name for reproduction in reproductions)}; leave --data out"
        )
    return data.resolve()


def _directory(name: str, scale: str, out: Path | None, count: int) -> Path:
    if out is None:
        return Path("reproductions") / f"{name}-{scale}"
    return out if count == 1 else out / f"{name}-{scale}"


def _prepare(reproduction: "Reproduction", scale: "Scale", directory: Path) -> None:
    """Check that the directory can be written to and holds nothing that would be overwritten, before hours of work."""
    from analysis.reproduction import presentation

    check_folder("--out", directory)
    presentation.refuse_foreign(reproduction, scale, directory)


def _make(reproduction: "Reproduction", task: "ReproductionContext", format: str, runner: "_Runner") -> None:
    from analysis.reproduction import presentation
    from analysis.reproduction.elapsed import elapsed
    from analysis.reproduction.measurements import carry_out

    scale, directory = task.scale, task.out
    runner.called = False
    task.progress(presentation.expected_length(reproduction, scale))
    with elapsed(directory) as seconds:
        try:
            measurements, result = carry_out(reproduction, task)
        except ExperimentError as error:
            _, of_data, problem = str(error).partition("workload.path: ")
            if task.data is None or not of_data:
                raise
            # --data is the option behind this key.
            raise ExperimentError(f"--data: {reproduction.name}: {problem}") from None
    if runner.overrides:
        if not runner.called:
            raise ExperimentError(
                f"--set: {reproduction.name} runs no experiment, so there are no keys to set; leave --set out"
            )
        remark = f"Set by hand, in all experiments: {', '.join(runner.overrides)}."
        result = replace(result, remarks=[remark, *result.remarks])
    origin = _origin(seconds())
    written = presentation.write(reproduction, result, scale, directory, origin, measurements)
    echo(presentation.render(reproduction, result, scale, format, origin), nl=False)
    runner.console.print(f"\nwritten: {', '.join(str(path) for path in written)}")
    if not runner.overrides and task.data is None:
        _compare(reproduction, measurements, scale, runner.console)


def _compare(reproduction: "Reproduction", measurements: "Measurements", scale: "Scale", console: Console) -> None:
    """Compare measurements with the kept ones of the same scale, and print how many numbers are equal."""
    from analysis.reproduction.kept import kept_result
    from analysis.reproduction.measurements import compare

    earlier = kept_result(reproduction)
    if earlier is None or earlier.measurements is None or earlier.scale != scale:
        return
    if earlier.measurements.setting.data_kind != measurements.setting.data_kind:
        return
    compared = compare(earlier.measurements, measurements)
    console.print(
        f"compared with the kept result: {compared.equal} of {compared.numbers} numbers are equal"
        + (f"; largest relative difference {compared.largest:.2g}" if compared.equal < compared.numbers else "")
    )
    for line in compared.lines:
        console.print(f"  {line}")


def _origin(seconds: float) -> "Origin":
    from analysis.reproduction.contract import Origin
    from testbed.running.open_runs import now, provenance

    origin_facts = provenance()
    machine = origin_facts["machine"]
    return Origin(
        seconds,
        origin_facts["versions"]["testbed"],
        origin_facts["git_commit"],
        machine["processor"],
        machine["cpus"],
        now(),
    )


@dataclass
class _Runner:
    """Runs an experiment (or the missing points of its sweep) into a directory, with the command line's options."""

    cluster: "Mapping[str, str]"
    overrides: "Sequence[str]"
    console: "Console"
    quiet: bool
    called: bool = False

    def __call__(self, experiment: "Experiment", directory: Path) -> "list[RunRecords]":
        from testbed.cli.progress import display_for
        from testbed.records import RunRecords
        from testbed.running.execution import run_all, with_overrides, with_values

        self.called = True
        experiment = with_values(experiment, self.cluster, experiment.name)
        experiment = with_overrides(experiment, self.overrides, experiment.name)
        with display_for(self.console, self.quiet) as observer:
            paths = run_all(experiment, directory, where=experiment.name, resume=True, observer=observer)
        return [RunRecords(path) for path in paths]
