"""Print the result of `make coverage`: the files below 80 per cent, the lowest first, and the total.

python -m tests.coverage_table
"""

import os
from collections.abc import Iterator

from coverage import Coverage

ENOUGH = 80.0


def table(measured: Coverage) -> Iterator[str]:
    """A line for each file below `ENOUGH`, and one for all."""
    rows = []
    for file in measured.get_data().measured_files():
        _, statements, _, missing, _ = measured.analysis2(file)
        rows.append((len(statements), len(missing), os.path.relpath(file)))
    rows = [row for row in rows if row[0]]
    parts = sorted((100 * (1 - missing / lines), file) for lines, missing, file in rows)
    for percent, file in parts:
        if percent < ENOUGH:
            yield f"{percent:5.1f} %  {file}"
    total = sum(lines for lines, _, _ in rows)
    run = total - sum(missing for _, missing, _ in rows)
    yield f"{100 * run / total:5.1f} %  of {total} lines in {len(rows)} files"


if __name__ == "__main__":
    found = Coverage()
    found.load()
    print(*table(found), sep="\n")
