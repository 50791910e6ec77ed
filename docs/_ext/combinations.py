"""The page of options that exclude each other, from the table that the experiment is checked with."""

from testbed.experiment.compatibility import EXCLUSIONS, Choice, Exclusion

_HEAD = """# Options that exclude each other

An experiment with both options of a row is refused in one line that names both keys, before anything runs. Options of
an aggregation protocol that exclude each other are described with its [keys](configuration/index.md).

| option | excludes | because |
|---|---|---|
"""


def page() -> str:
    """Return the page as Markdown."""
    return _HEAD + "".join(map(_row, EXCLUSIONS))


def _row(one: Exclusion) -> str:
    why = one.why if isinstance(one.why, str) else "the protocol needs whole rounds"
    return f"| {_shown(one.option)} | {_shown(one.other)} | {why} |\n"


def _shown(choice: Choice) -> str:
    return f"`{choice.key}`" + (f" ({choice.values})" if choice.values else "")
