"""``testbed timeline``: rounds of a run as a trace that Perfetto and chrome://tracing show."""

from pathlib import Path
from typing import Annotated

from analysis.cli.results import runs_in
from testbed.cli.invocation import Debug, argument, check_file, examples, option, verb
from testbed.cli.terminal import echo, messages
from testbed.errors import ExperimentError

TIMELINE_EPILOG = examples(
    "testbed timeline runs/lotto --rounds 1 --out trace.json",
    "testbed timeline runs/quickstart/random --rounds 3-5 --out trace.json.gz",
    "testbed timeline runs/lotto --rounds 1,3-5",
    then="Open the file at https://ui.perfetto.dev (it stays on your machine), or in Chrome at chrome://tracing.",
)
_SUFFIXES = (".json", ".json.gz")


@verb(TIMELINE_EPILOG)
def timeline(
    directory: Annotated[str, argument("RUN", "The directory, or URI, of one run.")],
    rounds: Annotated[str | None, option("ROUNDS", "3, 3-5 or 3,7-9; default: the last completed one.")] = None,
    out: Annotated[
        Path | None, option("FILE", "A .json or .json.gz; default: timeline.json in the run's directory (URI: here).")
    ] = None,
    debug: Debug = False,
) -> None:
    """Write the events in rounds of a run in Chrome's trace format, with a track for each client."""
    from testbed.files.names import is_uri

    runs = runs_in([directory])
    if len(runs) > 1:
        raise ExperimentError(f"{directory}: {len(runs)} runs; give one of them, e.g. {runs[0].path}")
    if out is None:
        out = (Path() if is_uri(directory) else runs[0].path) / "timeline.json"
    if not out.name.endswith(_SUFFIXES):
        raise ExperimentError(f"--out: {out} is neither .json nor .json.gz")
    from analysis.timeline import write

    check_file("--out", out)
    written = write(runs[0], rounds, out)
    echo(written.path)
    shown_rounds = f"{len(written.rounds)} {'round' if len(written.rounds) == 1 else 'rounds'}"
    messages().print(
        f"{shown_rounds}, {written.events:,} events, {written.size / 1e6:.1f} MB: open it at https://ui.perfetto.dev",
        markup=False,
    )
