"""From the command to the first round's end: how long `testbed run` takes to start, in one process and on Ray.

    python -m benchmarks.start

Runs `testbed run examples/quickstart.yaml` as a person would, and stops it when the first round is on record; and
`testbed --help`. The floors are steps that no start can avoid: Ray's own start with one actor that imports torch,
torch's import alone, and the import of the library that reads the command line. The best of a few, alternated, since
a machine that does something else is never too fast. Targets: 8 s on Ray, 4 s in one process, 0.4 s for the help.
"""

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.report import arguments, emit

EXPERIMENT = Path(__file__).resolve().parents[1] / "examples" / "quickstart.yaml"
LOOK_EVERY_S = 0.01
GIVE_UP_S = 120.0

RAY_WITH_TORCH = """
import logging
import ray
ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
@ray.remote
class Importing:
    def torch(self):
        import torch
        return torch.__version__
ray.get(Importing.remote().torch.remote())
print("ready", flush=True)
input()
"""


def command_s(arguments: Sequence[str]) -> float:
    """Wall seconds of a Python process that ends by itself."""
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def ray_floor_s() -> float:
    """Wall seconds until Ray and an actor with torch are there, in a process of its own."""
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", RAY_WITH_TORCH], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        took = time.perf_counter() - began
        process.communicate(b"\n")
    if not ready:
        raise RuntimeError(f"Ray did not start: exit code {process.returncode}")
    return took


def first_round_s(*options: str) -> float:
    """Wall seconds from the command until the first round is on record; the run is stopped then."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "testbed", "run", str(EXPERIMENT), "--out", str(out), "--quiet", *options]
        began = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            while not _round_ended(out):
                if process.poll() is not None or time.perf_counter() - began > GIVE_UP_S:
                    process.terminate()
                    raise RuntimeError(f"no first round: {process.communicate()[1].decode().strip()}")
                time.sleep(LOOK_EVERY_S)
            took = time.perf_counter() - began
            process.send_signal(signal.SIGINT)
            process.communicate()
    return took


def _round_ended(out: Path) -> bool:
    """Whether a log in one of the runs says that a round has ended."""
    for log in out.glob("*/log.jsonl"):
        for line in log.read_text().splitlines():
            try:
                if json.loads(line)["event"] == "round-ended":
                    return True
            except json.JSONDecodeError:
                continue  # still being written
    return False


def main() -> None:
    """Measure and print."""
    parser = arguments("From the command to the first round.")
    parser.add_argument("--times", type=int, default=3, help="how often each; the best counts")
    options = parser.parse_args()
    measured: dict[str, tuple[Callable[[], float], Callable[[], float]]] = {
        "on Ray": (first_round_s, ray_floor_s),
        "in process": (lambda: first_round_s("--network", "in-process"), lambda: command_s(["-c", "import torch"])),
        "--help": (lambda: command_s(["-m", "testbed", "--help"]), lambda: command_s(["-c", "import typer"])),
    }
    rows = []
    for name, (ours, floor) in measured.items():
        pairs = [(ours(), floor()) for _ in range(options.times)]
        seconds, floor_seconds = (min(column) for column in zip(*pairs, strict=True))
        rows.append(
            {"start": name, "seconds": seconds, "floor_seconds": floor_seconds, "ratio": seconds / floor_seconds}
        )
    on_ray, in_process, told = rows
    emit(
        {
            "seconds": on_ray["seconds"],
            "floor_seconds": on_ray["floor_seconds"],
            "ratio": on_ray["ratio"],
            "in_process_seconds": in_process["seconds"],
            "in_process_floor_seconds": in_process["floor_seconds"],
            "help_seconds": told["seconds"],
        },
        rows,
        options.format == "json",
    )


if __name__ == "__main__":
    main()
