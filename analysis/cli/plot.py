"""``testbed plot``: figures of runs and sweeps, as PNG and PDF, and their data as CSV."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from analysis.cli.results import Directories, runs_in
from testbed.cli.invocation import Debug, check_folder, examples, option, verb
from testbed.cli.terminal import echo, messages
from testbed.errors import ExperimentError

PLOT_EPILOG = examples(
    "testbed plot runs/quickstart --target best",
    "testbed plot runs/quickstart --only accuracy,traffic-by-stage --columns 2 --format pdf,svg",
    "testbed plot runs/monday runs/tuesday --out figures",
    "testbed plot runs/sweep --x selection.participants --y round_s,server_bytes",
    "testbed plot runs/sweep --x links.up_mbit_s --y time_to_target_s --target 80% --hue selection.protocol --log x",
    then="Each figure comes with its data as CSV. A wrong name prints the allowed names.",
)
_USUAL_Y = "round_s,server_bytes"


@verb(PLOT_EPILOG)
def plot(
    directories: Directories,
    out: Annotated[
        Path | None, option("DIR", "Folder of the figures; default: figures/ in the first directory (URI: here).")
    ] = None,
    only: Annotated[str | None, option("NAME,...", "Draw only these figures, e.g. accuracy,stragglers.")] = None,
    x: Annotated[
        str | None, option("KEY", "Draw one figure: measures over this key of the experiments.", "--x")
    ] = None,
    y: Annotated[
        str | None,
        option("NAME,...", f"With --x, one panel per measure; default: {_USUAL_Y}.", "--y"),
    ] = None,
    hue: Annotated[
        str | None,
        option("KEY,...", "With --x, one line per value of this key; default: the keys that differ between runs."),
    ] = None,
    log: Annotated[Literal["x", "y", "xy"] | None, typer.Option(help="With --x, logarithmic axes.")] = None,
    target: Annotated[
        list[str] | None,
        option("TARGET", "Lines at 80%, loss<0.5, perplexity<90, or best, in the curves; may be repeated."),
    ] = None,
    smooth: Annotated[int, option("K", "Smooth curves: means over K evaluations.", min=1)] = 1,
    columns: Annotated[
        int | None,
        typer.Option(
            metavar="1|2", min=1, max=2, help="Width in columns of a paper: 3.5 or 7.16 inches; default: by content."
        ),
    ] = None,
    format: Annotated[str, option("png,pdf,svg", "Formats to write.")] = "png,pdf",
    debug: Debug = False,
) -> None:
    """Draw round time, traffic and dropouts by stage, learning curves, availability, or measures over a swept key."""
    _check_options(x, {"--y": y, "--hue": hue, "--log": log}, {"--only": only, "--smooth": smooth > 1})
    runs = runs_in(directories)
    from analysis.figures import comparison as figures
    from testbed.files.names import is_uri

    formats = figures.formats_of(_listed(format))
    beside = Path() if is_uri(directories[0]) else Path(directories[0])
    folder = out or beside / "figures"
    check_folder("--out", folder)
    if x is not None:
        if len(target or ()) > 1:
            raise ExperimentError("--target: with --x only one is allowed")
        measures, lines = _listed(y or _USUAL_Y), _listed(hue)
        named = target[0] if target else None
        paths = figures.plot_swept(
            runs, folder, x, measures, lines, log=log or "", columns=columns, formats=formats, target=named
        )
    else:
        paths = figures.plot(
            runs,
            folder,
            lambda line: messages().print(line, markup=False),
            only=_listed(only),
            columns=columns,
            formats=formats,
            targets=target or (),
            smooth=smooth,
        )
    for path in paths:
        echo(path)


def _check_options(x: str | None, of_x: dict[str, object], others: dict[str, object]) -> None:
    """Raise `ExperimentError` for an option of the other kind of figure."""
    disallowed, reason = (others, "not allowed with --x") if x is not None else (of_x, "allowed only with --x KEY")
    if wrong := [name for name, value in disallowed.items() if value]:
        raise ExperimentError(f"{wrong[0]}: {reason}")


def _listed(text: str | None) -> list[str]:
    """Return the parts between commas, without repetitions."""
    parts = [part.strip() for part in (text or "").split(",")]
    return list(dict.fromkeys(part for part in parts if part))
