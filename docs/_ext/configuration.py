"""The reference of the experiment file: a page a section, from the schema alone."""

import json
from functools import cache
from pathlib import Path

from docs._ext import schema_keys
from docs._ext.markdown import anchor, escaped, facts_line, table
from docs._ext.schema_keys import OWN_CLASS, REQUIRED, Key, Reference, Variant, literal
from docs._ext.units import NO_UNIT

EXAMPLES = Path(__file__).resolve().parents[1] / "reference" / "examples"
"""An experiment file for each section, ``links.yaml`` for `links`; for the keys of no section ``general.yaml``."""

GENERAL = "general"

TOCTREE = "```{toctree}\n:hidden:\n:glob:\n\n*\n```\n"
"""The contents of an index for the built site: all pages beside it."""


def pages(reference: Reference) -> dict[str, str]:
    """Return the pages by name, as Markdown: one for the keys of no section, one for each section, an index."""
    sections = [key for key in reference.top_level() if key.section]
    plain = [key for key in reference.top_level() if not key.section]
    made = {GENERAL: _general(reference, plain)}
    made |= {key.path: _section(reference, key) for key in sections}
    return {"index": _index(reference, plain, sections), **made}


def _index(reference: Reference, plain: list[Key], sections: list[Key]) -> str:
    rows = [[f"[{GENERAL}]({GENERAL}.md)", "Keys of no section: " + ", ".join(_link(key.path) for key in plain)]]
    for key in sections:
        rows.append([f"[`{key.path}`]({key.path}.md)", escaped(key.variants[0].description)])
    listed = "".join(f"- {_link(path, path)}\n" for path in sorted(reference.keys))
    return f"""# The experiment file

An experiment is one YAML file. Every key has a default unless its entry says *required*. `testbed validate` refuses a
misspelt key in one line that names the file, the key and the allowed keys. These pages are made from the same schema.
`testbed schema` prints it as JSON schema, with which editors complete keys.

{table(["section", "contents"], rows)}
`KEY=VALUE` after `--set` overrides a key: `testbed run FILE --set selection.participants=20`. The key is a dotted
path, as in the list below; `sweep` takes the same paths. `null` is YAML's word for *none*.

{TOCTREE}
## All keys

{listed}"""


def _general(reference: Reference, keys: list[Key]) -> str:
    return "# General keys\n\n" + _example(GENERAL) + "## Keys\n\n" + "".join(_entry(reference, key) for key in keys)


def _section(reference: Reference, section: Key) -> str:
    about = "\n".join(_variant(reference, section, variant) for variant in section.variants)
    parts = [f"# `{section.path}`\n\n{about}\n", _example(section.path)]
    if section.path in reference.alternatives:
        parts.append(_alternatives(reference, section.path))
    parts.append("## Keys\n\n")
    deeper: dict[str, list[Key]] = {}
    for key in reference.below(section.path):
        deeper.setdefault(key.path.rpartition(".")[0], []).append(key)
    for path, keys in deeper.items():
        if path != section.path:
            parts.append(f"## Keys of `{path}`\n\n")
            if path in reference.alternatives:
                parts.append(_forms(reference, path))
        parts += [_entry(reference, key) for key in keys]
    return "".join(parts)


def _example(name: str) -> str:
    path = EXAMPLES / f"{name}.yaml"
    return f"```yaml\n{path.read_text()}```\n\n" if path.is_file() else ""


def _alternatives(reference: Reference, section: str) -> str:
    """A section's alternatives, each with the keys that it has."""
    by = reference.alternatives[section][0].chosen_by
    named = {}
    for alternative in reference.alternatives[section]:
        keys = [f"{section}.{name}" for name in alternative.keys if f"{section}.{name}" != by]
        named[alternative.value] = (alternative, keys)
    everywhere = set.intersection(*(set(keys) for _, keys in named.values()))
    parts = [f"{_link(by, by)} chooses one of:\n\n"]
    for value, (alternative, keys) in named.items():
        own = ", ".join(_link(key) for key in keys if key not in everywhere)
        about = escaped(_of_choice(reference, by, value) or alternative.description)
        parts.append(f"- `{value}`: {about}" + (f"  \n  Keys: {own}\n" if own else "\n"))
    shared = ", ".join(_link(key) for key in reference.keys if key in everywhere)
    return "".join(parts) + (f"\nAll of them have {shared}.\n\n" if shared else "\n")


def _of_choice(reference: Reference, by: str, value: str) -> str:
    """The description that the schema gives with one value of the key that chooses."""
    for variant in reference.keys[by].variants:
        if value != OWN_CLASS and variant.schema.get("const") == value:
            return variant.description
    return ""


def _forms(reference: Reference, path: str) -> str:
    """Forms of a section that are told apart by a key that only one has."""
    listed = "".join(
        f"- with {_link(form.chosen_by)}{form.value and ': ' + form.value}: {escaped(form.description)}\n"
        for form in reference.alternatives[path]
    )
    return f"One of:\n\n{listed}\n"


def _link(path: str, text: str = "") -> str:
    """Return a link to the entry of a key, with the last part of its path as the text."""
    page = path.partition(".")[0].removesuffix("[]")
    page = page if _is_section(page) else GENERAL
    return f"[`{text or path.rpartition('.')[2]}`]({page}.md#{anchor(path)})"


@cache
def _is_section(name: str) -> bool:
    return any(key.path == name and key.section for key in schema_keys.reference().top_level())


def _entry(reference: Reference, key: Key) -> str:
    """Return a heading with the key's path, its meaning, type, default and unit, and the alternatives that have it."""
    if _chooses(reference, key):
        body = _chosen(reference, key)
    else:
        body = "\n".join(_variant(reference, key, variant) for variant in key.variants)
    return f"### `{key.path}`\n\n{body}\n"


def _chooses(reference: Reference, key: Key) -> bool:
    """Whether the key is the one that tells a section's alternatives apart by its value."""
    section = key.path.rpartition(".")[0]
    among = reference.alternatives.get(section, [])
    return any(one.chosen_by == key.path and one.value for one in among)


def _chosen(reference: Reference, key: Key) -> str:
    section = key.path.rpartition(".")[0]
    values = [one.value for one in reference.alternatives[section]]
    what = escaped(reference.keys[section].variants[0].description)
    allowed = [f"`{one}`" for value in values for one in value.split(" or ")]
    facts = [("Allowed", ", ".join(allowed)), ("Default", _default_choice(reference, section))]
    own = f"; `{OWN_CLASS}` is a [user-defined class](../../how-to/own-classes.md)" if OWN_CLASS in values else ""
    return f"{what}: one of the above{own}.\n\n{facts_line(facts)}"


def _default_choice(reference: Reference, section: str) -> str:
    from testbed.experiment import Experiment

    by = reference.alternatives[section][0].chosen_by
    value = Experiment().plain()
    for part in section.split("."):
        if part not in value:  # a section that is left out unless it is written: the default of one that is
            return next(literal(one.default) for one in reference.keys[by].variants if one.default is not REQUIRED)
        value = value[part]
    return literal(value[by.rpartition(".")[2]])


def _variant(reference: Reference, key: Key, variant: Variant) -> str:
    form = reference.form(variant.schema)
    facts = [("Allowed" if form.startswith("`") else "Type", form)]
    if variant.default is REQUIRED:
        facts.append(("Default", "*required*"))
    elif not (key.section and (form == "section" or isinstance(variant.default, dict))):
        facts.append(("Default", _default(variant.default)))  # a section's default is that of its keys
    if key.unit and key.unit != NO_UNIT:
        facts.append(("Unit", key.unit))
    if variant.alternatives and (only := _only(reference, key, variant)):
        facts.append(("Only with", only))
    if facts == [("Type", "section")]:
        facts = []
    return f"{escaped(variant.description)}\n\n{facts_line(facts)}".rstrip("\n") + "\n"


def _only(reference: Reference, key: Key, variant: Variant) -> str:
    """The alternatives that have the key so, by section; empty where all of a section have it.

    A validator may refuse a key in some of its alternatives; its schema then names the others (``onlyWith``).
    """
    if narrower := variant.schema.get("onlyWith"):
        section = key.path.partition(".")[0]
        return "; ".join(f"{_link(f'{section}.{name}')}: `{value}`" for name, value in narrower.items())
    listed: dict[str, list[str]] = {}
    for condition in variant.alternatives:
        by, _, value = condition.partition(": ")
        listed.setdefault(by if value else by.rpartition(".")[0], []).append(value or _link(by))
    said = []
    for by, values in listed.items():
        section = by if by in reference.alternatives else by.rpartition(".")[0]
        if len(values) < len(reference.alternatives[section]):
            chosen = by in reference.keys and section != by
            said.append(f"{_link(by)}: " + ", ".join(f"`{v}`" for v in values) if chosen else ", ".join(values))
    return "; ".join(said)


def _default(value: object) -> str:
    if isinstance(value, dict | list):
        return f"`{json.dumps(value)}`" if value else "empty"
    return "none (`null`)" if value is None else literal(value)
