"""Run the code blocks of pages as a reader would type them: of pages with ``executed: true`` in their front matter
(``executed: ray`` where a command starts Ray).

In an empty folder, in the order of the page, with `examples` of the repository beside it:

- ```` ```yaml ```` (or any other language) with a first line ``# file: NAME`` is written to that file;
- ```` ```bash ```` is run by bash, which stops at the first command that fails; ``# exits with CODE`` as first line
  says that the last one is meant to. Lines that only call ``testbed`` are run in this process, seconds faster;
- ```` ```python ```` is run in one interpreter for the whole page: names stay from block to block.

A block of another language, or below a comment ``% not executed``, is left out.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.cli import main
from tests.repository import ROOT

DOCS = ROOT / "docs"
_FRONT = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)
_FILE = re.compile(r"# file: (\S+)[ ]*$", re.MULTILINE)
_EXIT = re.compile(r"# exits with (\d+)[ ]*$", re.MULTILINE)
_FENCE = re.compile(r"^```(\w*|\{.*)\s*$")  # a directive, `{image} path`, too
_SHELL = re.compile(r"[|&;<>`$*?~\\(]")
_SKIPPED = "% not executed"


@dataclass(frozen=True)
class Block:
    """A block of code.

    Attributes:
        line: of the page, where its text begins.
        language: as written behind the backticks.
        text: content of the block.
    """

    line: int
    language: str
    text: str

    @property
    def file(self) -> str:
        """The file that it is written to; empty: none."""
        match = _FILE.match(self.text)
        return match[1] if match else ""


def is_executed(page: Path) -> bool:
    """Whether the page asks for it."""
    return _asked(page) in ("true", "ray")


def needs_ray(page: Path) -> bool:
    """Whether one of its commands starts Ray."""
    return _asked(page) == "ray"


def _asked(page: Path) -> str:
    front = _FRONT.match(page.read_text())
    match = re.search(r"^executed: (\w+)$", front[1], re.MULTILINE) if front else None
    return match[1] if match else ""


def pages() -> list[Path]:
    """All pages that are executed."""
    return sorted(page for page in DOCS.rglob("*.md") if "_build" not in page.parts and is_executed(page))


def blocks(page: Path) -> Iterator[Block]:
    """The blocks that are to be run or written, in order."""
    lines = page.read_text().splitlines()
    at = 0
    while at < len(lines):
        opened = _FENCE.match(lines[at])
        at += 1
        if not opened:
            continue
        before = next((line for line in reversed(lines[: at - 1]) if line.strip()), "")
        end = lines.index("```", at)
        block = Block(at + 1, opened[1], "\n".join(lines[at:end]) + "\n")
        at = end + 1
        if before != _SKIPPED and (block.file or block.language in ("bash", "python")):
            yield block


def execute(page: Path, folder: Path) -> None:
    """Run a page in `folder`, which has to be the working directory; `AssertionError` says which line failed."""
    (folder / "examples").symlink_to(ROOT / "examples")
    try:
        _execute(page, folder)
    finally:
        _forget_modules(folder)


def _forget_modules(folder: Path) -> None:
    """Modules that a page has written and imported: the next page may have others of the same names."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and Path(file).is_relative_to(folder):
            del sys.modules[name]


def _execute(page: Path, folder: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    where = str(page.relative_to(ROOT)) if page.is_relative_to(ROOT) else page.name
    for block in blocks(page):
        if block.file:
            path = folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        elif block.language == "python":
            code = compile("\n" * (block.line - 1) + block.text, where, "exec")
            exec(code, names)
        elif arguments := _only_testbed(block):
            _testbed(block, arguments, where)
        else:
            _bash(block, folder, where)


def _only_testbed(block: Block) -> list[list[str]]:
    """The arguments of its calls of ``testbed``; none where it needs a shell, or Ray, which wants its own process."""
    text = block.text.replace("\\\n", " ")
    calls = [shlex.split(line, comments=True) for line in text.splitlines() if not _SHELL.search(line)]
    calls = [call for call in calls if call]
    plain = not _SHELL.search(text) and all(call[0] == "testbed" for call in calls)
    return [call[1:] for call in calls] if plain and not any(_starts_ray(call) for call in calls) else []


def _starts_ray(call: list[str]) -> bool:
    return call[1] in ("run", "tune", "reproduce", "cluster", "submit", "jobs") and "in-process" not in call


def _testbed(block: Block, calls: list[list[str]], where: str) -> None:
    codes = []
    for arguments in calls:
        codes.append(main(arguments))
        if codes[-1]:
            break
    expected = _expected(block)
    assert codes[-1] == expected, f"{where}:{block.line}: exit code {codes[-1]}, expected {expected}"
    assert len(codes) == len(calls), f"{where}:{block.line}: ended before its last command"


def _expected(block: Block) -> int:
    match = _EXIT.match(block.text)
    return int(match[1]) if match else 0


def _bash(block: Block, folder: Path, where: str) -> None:
    command = shlex.join([sys.executable, "-m", "testbed"])
    script = f'set -euo pipefail\ntestbed() {{ {command} "$@"; }}\n{block.text}'
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)]), "COLUMNS": "120"}
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    expected = _expected(block)
    said = f"{where}:{block.line}: exit code {done.returncode}, expected {expected}\n{done.stdout}{done.stderr}"
    assert done.returncode == expected, said
