"""Check that code and pages are in plain English: the part of the rules that a program can check.

    python -m tests.language                      # a table of counts, one row a package; ends with 1 above a limit
    python -m tests.language --list testbed/network   # each place, one in a line

CONTRIBUTING.md has the rules.
"""

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from docs._ext.links import prose
from tests.repository import ROOT

SHIPPED = ("testbed", "cluster", "workloads", "analysis")
THIS = Path(__file__).resolve()  # quotes the words that it looks for
PACKAGES = (*SHIPPED, "tests", "benchmarks", "docs", "examples")

_CODE: dict[str, float] = {"relative": 3, "idiom": 0}
_SHIPPED_LIMITS: dict[str, float] = _CODE | {
    "class defined twice": 0,
    "first line goes on": 0,
    "former name": 0,
    "no Args": 0,
    "not imperative": 0,
    "vague name": 0.05,
}
LIMITS: dict[str, dict[str, float]] = {
    **dict.fromkeys(SHIPPED, _SHIPPED_LIMITS),
    "tests": {"relative": 3, "idiom": 0.02, "pinned wording": 0},
    "benchmarks": _CODE,
    "examples": _CODE,
    "docs": {"relative": 3, "idiom": 0},
}
"""Findings in 1,000 lines, by package and kind: upper limits, which only ever go down."""

_RELATIVE = re.compile(r"\b(what|who|whose|whom|whatever|whoever)\b", re.IGNORECASE)
_IDIOM = re.compile(r"\b(of whom|so many|none such|for none|such a one|whose ever|ever it is)\b", re.IGNORECASE)
_SENTENCE = re.compile(r"[^.?!]*(?:[.?!]+(?=[\s\"'`)]|$)|$)", re.DOTALL)

_FORMER = """
_bring_together _Both _Moved _put_aside certain_answer keeps_masks draws_by_samples of_shape by_losses which_stand
surely_not_under to_the_end says_something at_the_same_place OwnState _Carried _Leaving ELSEWHERE remembers all_verify
"""
FORMER_NAMES = frozenset(_FORMER.split())
"""Names that a plain one has replaced: nothing is called so again."""

_VAGUE = """
found said told known given learned sent seen held drawn kept meant wanted heard asked handed fetched one ones
thing things
"""
VAGUE_NAMES = frozenset(_VAGUE.split())
"""Names that say nothing of their content: participles and pronouns. No variable, argument or function has one."""

_OPENINGS = """
the a an all each every this these those that one two its their his her our what who whose whom which whether how where
when why if as in by of for from with without at on under over after before no none not nothing so only also both either
neither there here it they he she we you is are was were has have had
"""
_NOT_IMPERATIVE = frozenset(_OPENINGS.split())
"""First words with which the docstring of a function begins as a noun phrase, a clause or a statement."""

SENTENCE_IN_MATCH = re.compile(r"\w+ \w+ \w+ \w+")


@dataclass(frozen=True)
class Finding:
    """One place that breaks a rule: kind of rule, file, line and the words."""

    kind: str
    path: Path
    line: int
    text: str


def python_texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield docstrings, comments and string literals with the line on which each begins.

    Neighbouring comment lines are one text. Strings without a space are identifiers, not language.
    """
    comment: list[str] = []
    begin = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if comment and token.start[0] != last + 1:
                yield begin, " ".join(comment)
                comment = []
            begin = begin if comment else token.start[0]
            last = token.start[0]
            comment.append(token.string.lstrip("# "))
        elif token.type in (tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)) and " " in token.string:
            yield token.start[0], token.string
    if comment:
        yield begin, " ".join(comment)


def page_texts(text: str) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs of a Markdown page, without code, with the line on which each begins."""
    begin, paragraph = 0, list[str]()
    for number, line in [*prose(text), (0, "")]:
        is_text = bool(line.strip()) and not line.startswith("    ")
        if paragraph and not (is_text and number == begin + len(paragraph)):
            yield begin, "\n".join(paragraph)
            paragraph = []
        if is_text:
            begin = begin if paragraph else number
            paragraph.append(line)


def statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield the sentences of a text that are no questions, with the offset of each."""
    for match in _SENTENCE.finditer(text):
        if match.group() and not match.group().rstrip("\"'` \n").endswith("?"):
            yield match.start(), match.group()


def language_findings(path: Path, texts: Iterable[tuple[int, str]]) -> Iterator[Finding]:
    """Find relative words (what, who, whose, whom) and idioms in texts, outside of questions."""
    for line, text in texts:
        if not (_RELATIVE.search(text) or _IDIOM.search(text)):
            continue  # most texts; finding their sentences takes long
        for offset, sentence in statements(text):
            for kind, pattern in (("relative", _RELATIVE), ("idiom", _IDIOM)):
                for match in pattern.finditer(sentence):
                    place = line + text.count("\n", 0, offset + match.start())
                    yield Finding(kind, path, place, text[offset + max(match.start() - 40, 0) :][:100])


Function = ast.FunctionDef | ast.AsyncFunctionDef


def documented(tree: ast.Module) -> Iterator[tuple[Function | ast.ClassDef, str]]:
    """Yield functions and classes that have a docstring, with it."""
    for node in ast.walk(tree):
        if isinstance(node, Function | ast.ClassDef) and (docstring := ast.get_docstring(node)):
            yield node, docstring


def _is_property(node: Function) -> bool:
    words = {name.id for name in node.decorator_list if isinstance(name, ast.Name)}
    words |= {name.attr for name in node.decorator_list if isinstance(name, ast.Attribute)}
    return bool(words & {"property", "cached_property", "fixture", "computed_field"})


def docstring_findings(path: Path, tree: ast.Module) -> Iterator[Finding]:
    """Find docstrings of functions that do not begin with an imperative, and first lines that go on."""
    for node, docstring in documented(tree):
        first = docstring.splitlines()[0]
        words = re.findall(r"[\w'-]+", first)
        line = node.body[0].lineno
        if isinstance(node, Function) and not _is_property(node) and words:
            word = words[0].lower()
            if word in _NOT_IMPERATIVE or (word.endswith("s") and not word.endswith("ss")) or word.endswith("ed"):
                yield Finding("not imperative", path, line, first)
        if not first.rstrip().endswith((".", "!", "?", ":", '"""')):
            yield Finding("first line goes on", path, line, first)


def argument_findings(path: Path, tree: ast.Module) -> Iterator[Finding]:
    """Find public functions at module level with two or more arguments and no `Args`.

    A command documents each argument in the declaration of its option.
    """
    for node in tree.body:
        if isinstance(node, Function) and not node.name.startswith("_"):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            docstring = ast.get_docstring(node) or ""
            if len(arguments) >= 2 and "Args:" not in docstring and not _is_command(path):
                yield Finding("no Args", path, node.lineno, node.name)


def _is_command(path: Path) -> bool:
    return "cli" in path.parts


def name_findings(path: Path, tree: ast.Module) -> Iterator[Finding]:
    """Find variables, arguments and functions with names from `VAGUE_NAMES` or `FORMER_NAMES`."""
    for node in ast.walk(tree):
        name = None
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, Function | ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.attr
        if name is not None and name.lstrip("_").lower() in VAGUE_NAMES:
            yield Finding("vague name", path, node.lineno, name)  # type: ignore[attr-defined]
        if name in FORMER_NAMES:
            yield Finding("former name", path, node.lineno, str(name))  # type: ignore[attr-defined]


def match_findings(path: Path, tree: ast.Module) -> Iterator[Finding]:
    """Find ``match="..."`` with a sentence: tests pin the key and the value that a message names, not its wording."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.keyword) and node.arg == "match" and isinstance(node.value, ast.Constant)):
            continue
        if SENTENCE_IN_MATCH.search(str(node.value.value)):
            yield Finding("pinned wording", path, node.value.lineno, str(node.value.value))


def class_findings(trees: Iterable[tuple[Path, ast.Module]]) -> Iterator[Finding]:
    """Find classes at module level with the name of another one."""
    places: dict[str, list[tuple[Path, int]]] = {}
    for path, tree in trees:
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append((path, node.lineno))
    for name, several in places.items():
        for path, line in several if len(several) > 1 else []:
            yield Finding("class defined twice", path, line, name)


def files(paths: Iterable[str]) -> list[Path]:
    """List Python files and pages below `paths` (relative to the repository), without generated ones."""
    below = [ROOT / path for path in paths]
    all_files = [file for path in below for file in ([path] if path.is_file() else sorted(path.rglob("*")))]
    skipped = ("_build", "generated", "__pycache__")
    return [
        file
        for file in all_files
        if file.suffix in (".py", ".md") and not any(part in skipped for part in file.parts) and file != THIS
    ]


def findings(paths: Iterable[str]) -> Iterator[Finding]:
    """Find all places below `paths` that break a rule."""
    trees = []
    for path in files(paths):
        source = path.read_text(encoding="utf-8")
        if path.suffix == ".md":
            yield from language_findings(path, page_texts(source))
            continue
        tree = ast.parse(source)
        yield from language_findings(path, python_texts(source))
        yield from match_findings(path, tree)
        if path.relative_to(ROOT).parts[0] in SHIPPED:
            trees.append((path, tree))
            yield from docstring_findings(path, tree)
            yield from argument_findings(path, tree)
            yield from name_findings(path, tree)
    yield from class_findings(trees)


def main(arguments: list[str] | None = None) -> int:
    """Print counts by package, or each place."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", default=list(PACKAGES))
    parser.add_argument("--list", action="store_true", help="print each place instead of counts")
    parser.add_argument("--kind", help="of one rule only, such as 'relative'")
    options = parser.parse_args(arguments)
    places = [place for place in findings(options.paths) if options.kind in (None, place.kind)]
    if options.list:
        for place in places:
            print(f"{place.path.relative_to(ROOT)}:{place.line}: {place.kind}: {' '.join(place.text.split())}")
        return 0
    above = []
    for path in options.paths:
        lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files([path]))
        counts = Counter(place.kind for place in places if place.path.is_relative_to(ROOT / path))
        print(f"{path}: {lines} lines; " + ", ".join(f"{kind}: {count}" for kind, count in sorted(counts.items())))
        above += [f"{path}: {line}" for line in exceeded(LIMITS.get(path, {}), counts, lines)]
    for line in above:
        print(f"too many: {line}; list them: python -m tests.language --list {line.partition(':')[0]}")
    return 1 if above else 0


def exceeded(limits: Mapping[str, float], counts: Mapping[str, int], lines: int) -> Iterator[str]:
    """Yield a line for each kind of finding above its limit.

    Args:
        limits: by kind: findings in 1,000 lines.
        counts: findings, by kind.
        lines: lines of the package.
    """
    for kind, limit in limits.items():
        if 1000 * counts[kind] > limit * lines:
            yield f"{counts[kind]} of {kind!r} in {lines} lines, at most {limit:g} in 1,000"


if __name__ == "__main__":
    sys.exit(main())
