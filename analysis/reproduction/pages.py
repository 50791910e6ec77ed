"""The tables of docs/papers, generated from kept results.

A page has blocks between ``<!-- result: NAME -->`` and ``<!-- end -->``; what is between is the table, the claims and
the remarks of the kept outcome. ``<!-- results: all -->`` is the table of all of them, ``<!-- results: lotto -->`` of
those whose names begin so. `make papers` writes the blocks anew; `testbed reproduce --verify` says where a page
differs.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from analysis.reproduction.catalogue import catalogue
from analysis.reproduction.contract import Reproduction
from analysis.reproduction.kept import Kept, kept
from analysis.reproduction.presentation import duration, outcome
from analysis.reproduction.verdicts import VERDICTS, counts
from analysis.tables import Table, render
from testbed.errors import ExperimentError

_BLOCK = re.compile(r"(?m)^<!-- (result|results): ([\w-]+) -->\n(.*?)^<!-- end -->$", re.DOTALL)


def page(text: str, where: str) -> str:
    """The page with its blocks as kept results have them.

    Args:
        text: Markdown.
        where: the page's name, for errors.

    Raises:
        ExperimentError: a block names a reproduction that there is not, or of which nothing is kept.
    """
    every = catalogue()

    def block(found: re.Match[str]) -> str:
        kind, name = found[1], found[2]
        if kind == "results":
            chosen = [one for one in every.values() if name == "all" or one.name.startswith(f"{name}-")]
            if not chosen:
                raise ExperimentError(f"{where}: results: {name}: no reproduction's name begins so")
            text = overview(chosen)
        elif name not in every:
            raise ExperimentError(f"{where}: {name}: no such reproduction")
        elif (of_it := kept(every[name])) is None:
            raise ExperimentError(f"{where}: {name}: no result of it is kept")
        else:
            text = _block(of_it)
        return f"<!-- {kind}: {name} -->\n{text}<!-- end -->"

    return _BLOCK.sub(block, text)


def _block(found: Kept) -> str:
    origin = found.origin
    commit = (origin.git_commit or "")[:10] or "no checkout"
    took = f"{duration(origin.seconds)} on {origin.cpus} processors"
    said = f"Scale {found.scale}; {took}; version {origin.version}, {commit}."
    return f"\n{outcome(found.result)}\n{said}\n\n"


def overview(every: Sequence[Reproduction]) -> str:
    """How many claims of each verdict every reproduction has, and all together."""
    rows, total = [], dict.fromkeys(VERDICTS, 0)
    for one in every:
        found = kept(one)
        if found is None:
            rows.append([f"`{one.name}`", "–", *([""] * len(VERDICTS))])
            continue
        of_it = counts(found.result.claims)
        total = {verdict: total[verdict] + of_it[verdict] for verdict in VERDICTS}
        rows.append([f"`{one.name}`", found.scale, *(str(of_it[verdict] or "") for verdict in VERDICTS)])
    rows.append(["all", "", *(str(total[verdict]) for verdict in VERDICTS)])
    return (
        "\n"
        + render(Table(["reproduction", "scale", *VERDICTS], rows, left=range(2), is_markup=True), "markdown")
        + "\n"
    )


def differing(pages: Path) -> list[str]:
    """Pages below a folder whose blocks are not what kept results give, a line each."""
    found = []
    for path in sorted(pages.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        if page(text, path.name) != text:
            found.append(f"{path.name}: not what the kept results give; `make papers` writes it anew")
    return found


def main() -> None:
    """Write the blocks of all pages below the folder that the command line names."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/papers")
    try:
        for path in sorted(folder.rglob("*.md")):
            text = path.read_text(encoding="utf-8")
            new = page(text, path.name)
            if new != text:
                path.write_text(new, encoding="utf-8")
                print(f"{path}: written")
    except ExperimentError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
