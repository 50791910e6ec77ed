"""One task here and in Flower, side by side on this machine: lines of user code, seconds a round.

    python -m benchmarks.peers --flower .venv-flower/bin/python
    python -m benchmarks.peers --flower .venv-flower/bin/python --task images --rounds 4

10 of 100 clients train for one epoch in batches of 10; the mean of their models is the next. Flower runs it in its
simulation engine (on Ray), in the interpreter of its own environment; here it runs in one process, on Ray, and on Ray
under Lotto and SecAgg, which Flower's run has no counterpart to. Seconds are wall time from one round to the next, the
median over all rounds but the first, in which processes start. Lines of user code are those of the files that were run,
without blank ones, comments and docstrings; model and data are the same file in both.
"""

import ast
import io
import json
import os
import statistics
import subprocess
import tempfile
import tokenize
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.report import arguments, emit
from testbed import Experiment, run

FOLDER = Path(__file__).parent
SECURE = [
    "selection={protocol: lotto-client-centric, participants: 10, over_selection: 2}",
    "aggregation={protocol: secagg}",
]
WAYS = {
    "here, one process": ["cluster.network=in-process"],
    "here, on Ray": ["cluster.network=ray"],
    "here, on Ray, Lotto and SecAgg": ["cluster.network=ray", *SECURE],
}
COUNTED = "virtual time, bytes of every message, compute"
_NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def lines_of_code(path: Path) -> int:
    """Lines of a Python or YAML file that are neither blank nor comments nor docstrings."""
    text = path.read_text()
    if path.suffix != ".py":
        return sum(1 for line in text.splitlines() if line.split("#")[0].strip())
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, clean=False):
            first = node.body[0]
            found -= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(found)


def ours(task: str, rounds: int, changes: Sequence[str]) -> list[float]:
    """Wall seconds of each round here but the first."""
    named = [f"workload.{key}=benchmarks.peers.{task}:{name}" for key, name in (("dataset", "data"), ("model", "Net"))]
    keys = [f"rounds={rounds}", f"workload.evaluate_every={rounds}", *named, *changes]
    with tempfile.TemporaryDirectory() as folder:
        directory = run(Experiment.load(FOLDER / "experiment.yaml", keys), out=Path(folder) / "run")
        log = [json.loads(line) for line in (directory / "log.jsonl").read_text().splitlines()]
    ended = [entry for entry in log if entry["event"] == "round-ended"]
    if not all(entry["outcome"] == "completed" for entry in ended):
        raise SystemExit(f"not all rounds were completed: {[entry['reason'] for entry in ended]}")
    times = [datetime.fromisoformat(entry["time"]) for entry in ended]
    return [(after - before).total_seconds() for before, after in pairwise(times)]


def flower(task: str, rounds: int, python: str) -> dict[str, Any]:
    """Return the result of `flower_rounds`, of one more round, since the last one has no next."""
    environment = os.environ | {
        "FLWR_TELEMETRY_ENABLED": "0",
        "PEERS_ROUNDS": str(rounds + 1),
        "PEERS_TASK": f"benchmarks.peers.{task}",
        "PYTHONPATH": str(FOLDER.parents[1]),
    }
    command = [python, "-m", "benchmarks.peers.flower_rounds"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    """Run the chosen measurements and print them."""
    parser = arguments(__doc__.split("\n\n")[0])
    parser.add_argument(
        "--flower", required=True, metavar="PYTHON", help="interpreter of an environment with flwr, ray"
    )
    parser.add_argument("--task", choices=("digits", "images"), default="digits", help="the learning task")
    parser.add_argument("--rounds", type=int, default=6, help="of each; the first is left out")
    given = parser.parse_args()
    if given.rounds < 2:
        parser.error("--rounds: at least 2")
    shared = lines_of_code(FOLDER / f"{given.task}.py")
    said = flower(given.task, given.rounds, given.flower)
    theirs = statistics.median(said["rounds_s"][1:])
    rows: list[dict[str, object]] = [
        {
            "what": f"Flower {said['flwr']}, its simulation on Ray {said['ray']}",
            "lines of code": lines_of_code(FOLDER / "flower_app.py") + shared,
            "seconds a round": theirs,
            "counted": "wall time",
        }
    ]

    for what, changes in WAYS.items():
        seconds = statistics.median(ours(given.task, given.rounds, changes))
        own = lines_of_code(FOLDER / "experiment.yaml") + shared
        rows.append({"what": what, "lines of code": own, "seconds a round": seconds, "counted": COUNTED})
    by_way = dict(zip(WAYS, (float(str(row["seconds a round"])) for row in rows[1:]), strict=True))
    on_ray = by_way["here, on Ray"]
    emit(
        {
            "task": given.task,
            "seconds": on_ray,
            "floor_seconds": theirs,
            "ratio": on_ray / theirs,
            "in_process_seconds": by_way["here, one process"],
            "secure_seconds": by_way["here, on Ray, Lotto and SecAgg"],
            "lines": lines_of_code(FOLDER / "experiment.yaml") + shared,
            "flower_lines": lines_of_code(FOLDER / "flower_app.py") + shared,
            "model_and_data_lines": shared,
            "flwr": said["flwr"],
        },
        rows,
        given.format == "json",
    )


if __name__ == "__main__":
    main()
