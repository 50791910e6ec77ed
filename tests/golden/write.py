"""Write the hashes anew: `python -m tests.golden.write`; with names, only those of these runs. README.md says when."""

import json
import sys
import tempfile
from pathlib import Path

from tests.golden.experiments import EXPERIMENTS
from tests.golden.record import HASHES, cpu_kind, run_golden


def main(names: list[str]) -> None:
    """Run the experiments of these names (none: all), write their hashes, and print the parts that changed."""
    stored = json.loads(HASHES.read_text()) if HASHES.is_file() else {"cpu": cpu_kind(), "runs": {}}
    if names and stored["cpu"] != cpu_kind():
        sys.exit(f"{HASHES}: written on another CPU ({stored['cpu']}); write all runs anew, without names")
    if unknown := set(names) - set(EXPERIMENTS):
        sys.exit(f"no experiment {sorted(unknown)[0]!r}; see {Path(__file__).with_name('experiments.py')}")
    hashes = {}
    with tempfile.TemporaryDirectory() as directory:
        for number, name in enumerate(names or EXPERIMENTS):
            hashes[name] = run_golden(name, Path(directory) / str(number))
    former = stored["runs"]
    runs = {name: hashes.get(name) or former[name] for name in EXPERIMENTS if name in hashes | former}
    HASHES.write_text(json.dumps({"cpu": cpu_kind(), "runs": runs}, indent=1) + "\n")
    for name, parts in hashes.items():
        before = former.get(name, {})
        if changed := sorted(part for part in parts | before if parts.get(part) != before.get(part)):
            print(f"{name}: {', '.join(changed)}")


if __name__ == "__main__":
    main(sys.argv[1:])
