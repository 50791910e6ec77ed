"""The generated reference is whole: keys, columns, commands, modules, examples. `make docs` builds the site itself."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import analysis.comparison.summary
from analysis.comparison import overhead, seed_pairs
from docs._ext import api, columns, commands, committed, configuration, schema_keys
from testbed.experiment import load
from testbed.experiment.schema import points
from tests.analysis.recorded import synthetic_run
from tests.repository import ROOT

REFERENCE = schema_keys.reference()
KEYS = list(REFERENCE.keys.values())
PAGES = configuration.pages(REFERENCE)


def keys_of(node: dict, schema: dict, prefix: str = "") -> set[str]:
    """Paths of all keys below a node of a JSON schema, by another way than the reference's own."""
    found = set()
    if "$ref" in node:
        found |= keys_of(schema["$defs"][node["$ref"].split("/")[-1]], schema, prefix)
    for one in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        found |= keys_of(one, schema, prefix)
    if isinstance(named := node.get("additionalProperties"), dict) and "$ref" in named:
        found |= keys_of(named, schema, f"{prefix}.NAME")
    for name, value in node.get("properties", {}).items():
        path = f"{prefix}.{name}".strip(".")
        found |= {path} | keys_of(value, schema, path)
    return found


def test_every_key_of_the_schema_is_there() -> None:
    from testbed.experiment import Experiment

    schema = Experiment.model_json_schema()
    assert keys_of(schema, schema) == set(REFERENCE.keys)
    lines = "".join(PAGES.values()).splitlines()
    titles = {key.path for key in REFERENCE.top_level() if key.section}
    assert [key.path for key in KEYS if lines.count(f"{'#' if key.path in titles else '###'} `{key.path}`") != 1] == []


def test_the_committed_pages_match_the_code() -> None:
    """`make reference` writes them."""
    assert committed.stale(committed.pages()) == []


def test_a_page_that_differs_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committed, "FOLDER", tmp_path)
    wanted = {tmp_path / "commands" / "run.md": "new\n", tmp_path / "columns.md": "columns\n"}
    (tmp_path / "commands").mkdir()
    (tmp_path / "commands" / "run.md").write_text("old\n")
    (tmp_path / "commands" / "removed.md").write_text("removed\n")
    assert committed.write(wanted) == [
        tmp_path / name for name in ("columns.md", "commands/removed.md", "commands/run.md")
    ]
    assert committed.stale(wanted) == []
    assert not (tmp_path / "commands" / "removed.md").exists()


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.path)
def test_a_key_is_described(key: schema_keys.Key) -> None:
    """A key that chooses among alternatives is described by the alternatives."""
    section = key.path.rpartition(".")[0]
    choosing = [one.chosen_by for one in REFERENCE.alternatives.get(section, ()) if one.value]
    assert key.path in choosing or all(variant.description for variant in key.variants)
    assert all(one.description for one in REFERENCE.alternatives.get(section, ()))


def test_every_number_has_a_unit_or_is_known_to_have_none() -> None:
    """A new key with a number wants a line in docs/_ext/units.py, unless its name ends in a unit."""
    assert [key.path for key in KEYS if key.has_numbers and not key.unit] == []


def test_the_reference_says_what_a_key_takes() -> None:
    text = PAGES["selection"]
    entry = text[text.index("### `selection.over_selection`") :].split("\n###")[0]
    assert "Type: number, 1 to 100 · Default: `1.3`" in entry
    assert "`lotto-client-centric`" in entry
    deadline = PAGES["time"][PAGES["time"].index("### `time.deadline_s`") :].split("\n###")[0]
    assert "Type: number, more than 0 · Default: `60.0` · Unit: seconds" in deadline


@pytest.mark.parametrize("name", sorted(set(PAGES) - {"index"}))
def test_a_section_has_an_example_that_is_valid(name: str) -> None:
    path = configuration.EXAMPLES / f"{name}.yaml"
    assert path.read_text() in PAGES[name]
    experiment = load(path)
    assert list(points(experiment, str(path)))
    if name != configuration.GENERAL:
        assert name in experiment.model_fields_set


def test_every_column_is_described() -> None:
    declared = {table: set(schema.names) for table, schema in columns.TABLES.items()}
    assert {table: set(meanings) for table, meanings in columns.MEANINGS.items()} == declared
    assert set(columns.ROWS) == set(declared)
    assert all(meaning for table in columns.MEANINGS.values() for _, meaning in table.values())
    text = columns.tables()
    assert [name for names in declared.values() for name in names if f"| `{name}` |" not in text] == []


def test_every_key_of_the_summary_is_described() -> None:
    """All keys that its module writes, read from its source: no run has all of them."""
    written = set()
    for node in ast.walk(ast.parse(inspect.getsource(analysis.comparison.summary))):
        for key in node.keys if isinstance(node, ast.Dict) else ():
            if isinstance(key, ast.Constant):
                written.add(key.value.removesuffix(columns.HALF_WIDTH))
        if isinstance(node, ast.DictComp) and isinstance(node.key, ast.JoinedStr):
            written |= {part.value for part in node.key.values[:1] if isinstance(part, ast.Constant)}
    assert written == {re.sub(r"\.[A-Z]+$", ".", key) for key in columns.SUMMARY}


def test_columns_that_end_in_a_unit_say_so() -> None:
    ends = {"_mbit_s": "Mbit/s", "_ms": "milliseconds", "_s": "seconds", "_bytes": "bytes"}
    for table in columns.MEANINGS.values():
        for name, (unit, _) in table.items():
            end = next((end for end in ends if name.endswith(end)), None)
            assert end is None or unit.startswith(ends[end]), name
            assert ("bytes" in name) <= (unit == "bytes"), name


def test_every_command_and_option_is_there() -> None:
    pages = commands.pages()
    text = "".join(pages.values())
    for words, command in commands.leaves(commands.command_line()):
        assert f"```text\n{' '.join(words)}" in text
        page = pages[words[1]]
        for parameter in command.params:
            assert parameter.help or parameter.hidden, (words, parameter.name)
            if parameter.opts[0].startswith("-") and not parameter.hidden:
                assert re.search(rf"^- `(?:[^`]*, )?{re.escape(parameter.opts[0])}\b", page, re.MULTILINE)


def test_every_command_has_an_example_of_itself() -> None:
    """In its own help, or in that of the group that it belongs to."""
    root = commands.command_line()
    for words, command in commands.leaves(root):
        shown = commands.examples(command)[0] + commands.examples(root.commands[words[1]])[0]
        assert any(line.startswith(" ".join(words)) for line in shown), words


def test_the_library_is_there() -> None:
    pages = api.pages()
    assert {"Experiment", "run", "compare", "find_runs"} <= set(re.findall(r"\w+", pages["library"]))
    contracts = pages["contracts"]
    assert all(f"testbed.{name}.contract`" in contracts for name in ("selection", "aggregation", "workload"))
    shown = [module for part in api.parts().values() for module in api.modules(part)]
    assert len(shown) == len(set(shown)) > 100


def test_the_columns_of_the_comparison_are_those_of_its_page(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "reference" / "comparison.md").read_text()
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    named = {name for cell in cells for name in re.findall("`([^`]+)`", cell)}
    endings: tuple[str, ...] = ("_half_width", "_ratio", "_certified", "_lower_bound", "_baseline", "_ratio_half_width")
    endings = (*endings, "_difference", "_difference_half_width", "_difference_p")
    assert all(f"`{ending}`" in text for ending in endings)
    runs = [synthetic_run(tmp_path / name, name) for name in ("random", "batch-partition")]
    for frame in (overhead.compare(runs), overhead.compare_paired(runs), seed_pairs.compare_seeds(runs)):
        others = set(frame.columns) - named
        unknown = {name for name in others if not any(name.removesuffix(ending) in named for ending in endings)}
        assert {name for name in unknown if f"`{name}`" not in text} == set()
    assert named - set(overhead.compare(runs).columns) == set()
