"""Print the packages that pip would install, each with its version and SHA-256: for `make hashes`.

The hashes are those of the files that your own package index offers for this Python and machine, at the versions of
constraints.txt; keep the result, and installations elsewhere get the same files or fail:

    pip install --dry-run --ignore-installed --report report.json -c constraints.txt '.[all]'
    python tests/hashed_requirements.py report.json > requirements-hashed.txt
    pip install --require-hashes --no-deps -r requirements-hashed.txt && pip install --no-deps .
"""

import json
import sys
from pathlib import Path
from typing import Any

PROJECT = "sortition-testbed"


def hashed(report: dict[str, Any]) -> list[str]:
    """A line a package, sorted by name, from pip's installation report.

    Raises:
        ValueError: if a file has no SHA-256 in the report: its installation could not be checked.
    """
    lines = []
    for item in report["install"]:
        name, version = item["metadata"]["name"], item["metadata"]["version"]
        if name == PROJECT:
            continue
        digest = item["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")
        if digest is None:
            raise ValueError(f"pip's report has no SHA-256 of {name} {version}")
        lines.append(f"{name.lower()}=={version} --hash=sha256:{digest}")
    return sorted(lines)


if __name__ == "__main__":
    print("\n".join(hashed(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))))
