"""``testbed cluster``: whether a Ray cluster fits an experiment."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.text import Text

from testbed.cli.invocation import FAILED, Debug, ImportClasses, Overrides, argument, examples, group, option
from testbed.cli.terminal import Console, echo, messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.check import CheckResult

CHECK_EPILOG = examples(
    "testbed cluster check --address auto",
    "testbed cluster check examples/femnist-700.yaml --address HEAD:6379 --out runs/femnist",
    "testbed cluster check examples/femnist-700.yaml --format json",
    then="Exit codes: 0 no check fails (there may be warnings), 3 a check fails, or there is no cluster.",
)

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}

cluster = group("cluster", "Check a Ray cluster before anything runs on it.")


@cluster.command(epilog=CHECK_EPILOG)
def check(
    file: Annotated[
        Path | None, argument("EXPERIMENT.yaml", "An experiment file; none: check the cluster alone.")
    ] = None,
    overrides: Overrides = None,
    address: Annotated[str | None, option("RAY", "A running Ray cluster; default: cluster.address, else auto.")] = None,
    out: Annotated[
        str | None, option("DIR|URI", "Also check this place for records; default: the experiment's output.directory.")
    ] = None,
    output_format: Annotated[Literal["text", "json"], typer.Option("--format", help="How to print it.")] = "text",
    import_classes: ImportClasses = False,
    debug: Debug = False,
) -> None:
    """Check that nodes, versions, clocks, memory, data and output fit an experiment, without running it.

    Run it where the experiment will be run: on a node of the cluster.
    """
    from testbed.experiment import load
    from testbed.experiment.inputs import refuse_unless_imported
    from testbed.experiment.schema import points

    experiments = []
    if file is not None:
        experiment = load(file, overrides or [])
        experiments = [point.experiment for point in points(experiment, str(file))]
        refuse_unless_imported(experiments, str(file), import_classes)
        address = address or experiment.cluster.address
        if out is None and experiment.output.directory is not None:
            out = str(experiment.output.directory)
    if output_format == "text":
        messages().print("asking every node", style="dim")
    from cluster.check import check as run_checks

    findings = run_checks(address or "auto", experiments, out)
    failed = any(finding.level == "fail" for finding in findings)
    if output_format == "json":
        lines = [asdict(finding) for finding in findings]
        echo(json.dumps({"fits": not failed, "findings": lines}, indent=2))
    else:
        _print_table(findings)
    if failed:
        raise typer.Exit(FAILED)


def _print_table(findings: "Sequence[CheckResult]") -> None:
    """Print one line for each finding, aligned, and its advice on the next line."""
    checks = max(len(finding.check) for finding in findings)
    places = max(len(finding.where) for finding in findings)
    console = Console(soft_wrap=True)  # colours only where there is a terminal
    for finding in findings:
        line = Text(f"{finding.level:4}", style=_STYLES[finding.level])
        line.append(f"  {finding.check:{checks}}  {finding.where:{places}}  {finding.detail}", style="default not bold")
        console.print(line)
        if finding.advice:
            console.print(f"{'':4}  {'':{checks}}  {'':{places}}  -> {finding.advice}")
