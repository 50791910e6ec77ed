"""``testbed calibrate``: this machine's cost table, for modelled compute."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

from testbed.cli.invocation import Debug, Quiet, examples, option, verb
from testbed.cli.terminal import echo, messages
from testbed.durations import aligned_duration
from testbed.errors import ExperimentError

CALIBRATE_EPILOG = examples(
    "testbed calibrate",
    "testbed calibrate --out costs.yaml",
    "testbed run experiment.yaml --set time.compute=modelled --set time.costs=costs.yaml",
    then="Costs are CPU times of one thread, medians over --repeat batches.",
)


@verb(CALIBRATE_EPILOG)
def calibrate(
    out: Annotated[Path | None, option("FILE", "File for the table, in YAML; default: only print it.")] = None,
    repeat: Annotated[int, option("N", "Batches measured for each operation.", min=1, max=1000)] = 5,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Measure the cost of each operation of the protocols on this machine: the cost table of modelled compute."""
    if out is not None:
        _check_writable(out)
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from testbed.emulation.compute.cost import REFERENCE_COSTS, write_costs
    from testbed.engine.calibration import measured_costs

    bars = Progress(
        TextColumn("{task.description:24}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        console=messages(),
        transient=True,
        disable=quiet,
    )
    with bars:
        bar = bars.add_task("", total=len(REFERENCE_COSTS))
        done = iter(range(len(REFERENCE_COSTS)))
        costs = measured_costs(
            _local_training, repeat, lambda operation: bars.update(bar, description=operation, completed=next(done))
        )
    echo(table(costs))
    if out is not None:
        write_costs(out, costs)
        messages().print(f"wrote {out}; use it with time: {{compute: modelled, costs: {out}}}")


def _local_training() -> tuple[Callable[[], object], float]:
    """Return one epoch of the FEMNIST CNN at a client of 225 synthetic examples, and its parameters times examples."""
    import workloads
    from testbed.workload.section import WorkloadSection

    # Generated data: every machine can measure it. 225 is about the mean of FEMNIST's writers.
    section = WorkloadSection(dataset="synthetic-femnist", samples_per_client=225, batch_size=20)
    workload = workloads.build(section, population=10, seed=1)
    model = workload.initial_model()
    client = int(workload.sample_counts.argmax())
    processed = workload.train(client, model, 1).examples_processed
    return lambda: workload.train(client, model, 1), float(workload.dimension * processed)


def table(costs: Mapping[str, float]) -> str:
    """Return the costs beside those of the reference table, as text in columns; the last row is a weighted total."""
    from testbed.emulation.compute.cost import REFERENCE_COSTS
    from testbed.engine.calibration import participant_seconds

    rows = [
        (operation, costs[operation], reference)
        for operation, reference in REFERENCE_COSTS.items()
        if operation in costs
    ]
    rows.append(("a participant's round *", participant_seconds(costs), participant_seconds(REFERENCE_COSTS)))
    lines = [f"{'operation':24}  {'measured':>10}  {'reference':>10}  {'ratio':>6}"]
    for operation, seconds, reference in rows:
        both = f"{aligned_duration(seconds)}  {aligned_duration(reference)}"
        lines.append(f"{operation:24}  {both}  {seconds / reference:6.2f}")
    lines.append("* 70 participants, SecAgg and client-centric Lotto, 225 examples, the FEMNIST CNN")
    return "\n".join(lines)


def _check_writable(out: Path) -> None:
    """Check the file before minutes of measuring."""
    if out.is_dir():
        raise ExperimentError(f"--out {out}: is a directory; give the name of a file")
    if not out.parent.is_dir():
        raise ExperimentError(f"--out {out}: no such directory {out.parent}")
