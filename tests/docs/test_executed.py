"""The commands and code of the tutorials work as written."""

from pathlib import Path

import pytest

from tests.docs import executed
from tests.repository import ROOT

PAGES = [
    pytest.param(
        page,
        id=str(page.relative_to(ROOT / "docs")),
        marks=[pytest.mark.ray] if executed.needs_ray(page) else [],
    )
    for page in executed.pages()
]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    executed.execute(page, tmp_path)


def test_every_tutorial_is_executed() -> None:
    tutorials = set((ROOT / "docs" / "tutorials").glob("*.md")) - {ROOT / "docs" / "tutorials" / "index.md"}
    assert tutorials
    assert tutorials <= set(executed.pages())


PAGE = """---
executed: true
---
```yaml
# file: folder/one.yaml
key: 1
```

```python
number = 2
```

% not executed

```bash
exit 1
```

```text
exit 2
```

```{image} two.png
:alt: Two
```

```bash
# exits with 3
grep -q "key: 1" folder/one.yaml
exit 3
```

```python
open("two.txt", "w").write(str(number + 1))
```
"""


def test_blocks_are_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert executed.is_executed(page)
    executed.execute(page, tmp_path)
    assert (tmp_path / "two.txt").read_text() == "3"


def test_commands_alone_are_run_in_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "```bash\ntestbed --version  # a comment\n```\n\n```bash\n# exits with 2\ntestbed validate no.yaml\n```\n"
    )
    executed.execute(page, tmp_path)
    said = capsys.readouterr()
    assert said.out.startswith("testbed ")
    assert "no.yaml" in said.err


def test_a_block_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text("```bash\ntrue\nfalse\ntrue\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md:2: exit code 1, expected 0"):
        executed.execute(page, tmp_path)


def test_pages_may_have_modules_of_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    for number in ("1", "2"):
        folder = tmp_path / number
        folder.mkdir()
        monkeypatch.chdir(folder)
        monkeypatch.syspath_prepend(str(folder))
        page.write_text(
            f"```python\n# file: written_by_a_page.py\nNUMBER = {number}\n```\n"
            f"```python\nimport written_by_a_page\n\nassert written_by_a_page.NUMBER == {number}\n```\n"
        )
        executed.execute(page, folder)
