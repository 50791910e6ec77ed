"""Every key of an experiment file, read out of the pydantic schema: path, type, limits, default, unit, description.

No key is named here, so the reference has each key of the schema.
"""

import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel

from docs._ext.units import unit_of
from testbed.experiment import Experiment

Schema = Mapping[str, Any]
REQUIRED = object()
OWN_CLASS = "package.module:Name"
LISTED, NAMED = "[]", ".NAME"


@dataclass(frozen=True)
class Variant:
    """A key under some of the alternatives of its section.

    Attributes:
        schema: the key's JSON schema.
        default: as plain data, or REQUIRED.
        description: the schema's, empty if it has none.
        alternatives: the conditions under which the key is this, e.g. ``("selection.protocol: bernoulli",)``; empty:
            always.
    """

    schema: Schema
    default: Any
    description: str
    alternatives: tuple[str, ...] = ()


@dataclass(frozen=True)
class Key:
    """A key of an experiment file.

    Attributes:
        path: dotted; ``[]`` stands for an entry of a list, ``NAME`` for the name of an entry of a mapping.
        variants: at least one; several where alternatives of a section have the key with other limits or defaults.
        section: whether further keys lie below it.
    """

    path: str
    variants: tuple[Variant, ...]
    section: bool = False

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2]

    @property
    def unit(self) -> str:
        """The unit of its numbers, `units.NO_UNIT` where they have none; empty: no numbers, or nobody has said."""
        return unit_of(self.path) if self.has_numbers else ""

    @property
    def has_numbers(self) -> bool:
        """Whether a number can be written for it."""
        return any(_numeric(variant.schema) for variant in self.variants)


@dataclass(frozen=True)
class Alternative:
    """One of several forms of a section, told by the value of one of its keys, e.g. a protocol's parameters."""

    chosen_by: str  # the path of that key
    value: str
    description: str
    keys: tuple[str, ...] = field(default=(), compare=False)

    @property
    def condition(self) -> str:
        """What has to be written for it, e.g. ``selection.protocol: random``; a value that is free is left out."""
        return f"{self.chosen_by}: {self.value}" if self.value else self.chosen_by


class Reference:
    """The keys of a schema, in its order.

    Attributes:
        keys: by path.
        alternatives: by the path of the section that has them.
    """

    def __init__(self, model: type[BaseModel] = Experiment) -> None:
        self._schema = model.model_json_schema()
        self._models = {kind.__name__: kind for kind in _models()}
        self.keys: dict[str, Key] = {}
        self.alternatives: dict[str, list[Alternative]] = {}
        self._walk(self._schema, model, "", ())

    def top_level(self) -> list[Key]:
        """The keys without a dot."""
        return [key for key in self.keys.values() if "." not in key.path]

    def below(self, path: str) -> list[Key]:
        """All keys below `path`."""
        return [key for key in self.keys.values() if key.path.startswith((f"{path}.", f"{path}{LISTED}."))]

    def _walk(self, schema: Schema, model: type[BaseModel] | None, prefix: str, within: tuple[str, ...]) -> None:
        required = set(schema.get("required", ()))
        for name, value in schema.get("properties", {}).items():
            default = REQUIRED if name in required else _default(model, name, value)
            variant = Variant(value, default, value.get("description", ""), within)
            self._add(f"{prefix}{name}", variant)

    def _add(self, path: str, variant: Variant) -> None:
        sections = list(self._sections(variant.schema))
        known = self.keys.get(path)
        self.keys[path] = Key(path, _joined(known.variants if known else (), variant), bool(sections))
        for schema, model, entry in sections:
            below = path + entry
            within = variant.alternatives
            if len(sections) > 1 and (chosen := _chosen_by(schema, sections)):
                by, value = chosen
                alternative = Alternative(f"{below}.{by}", value, _summary(schema), tuple(schema["properties"]))
                among = self.alternatives.setdefault(below, [])
                if alternative not in among:  # a list of sections has them twice
                    among.append(alternative)
                within = (*within, alternative.condition)
            self._walk(schema, model, f"{below}.", within)

    def _sections(self, schema: Schema, entry: str = "") -> Iterator[tuple[Schema, type[BaseModel] | None, str]]:
        """Yield the objects with keys that a value may be, each with the suffix of its path."""
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            target = self._schema["$defs"][name]
            if "properties" in target:
                yield target, self._models.get(name), entry
            else:
                yield from self._sections(target, entry)
        for one in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
            yield from self._sections(one, entry)
        if isinstance(schema.get("items"), Mapping):
            yield from self._sections(schema["items"], LISTED)
        if isinstance(schema.get("additionalProperties"), Mapping):
            yield from self._sections(schema["additionalProperties"], NAMED)

    def form(self, schema: Schema) -> str:
        """What a value may be, in words, e.g. ``integer, more than 0``."""
        if "$ref" in schema:
            target = self._schema["$defs"][schema["$ref"].rpartition("/")[2]]
            return "section" if "properties" in target else self.form(target)
        options = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
        if options:
            return "; or ".join(dict.fromkeys(self.form(one) for one in options))
        if "const" in schema:
            return literal(schema["const"])
        if "enum" in schema:
            return ", ".join(literal(value) for value in schema["enum"])
        return self._plain_form(schema)

    def _plain_form(self, schema: Schema) -> str:
        kind = schema.get("type")
        if kind == "null":
            return "none (`null`)"
        if kind == "array":
            return "list of: " + (self.form(schema["items"]) if schema.get("items") else "any value") + _size(schema)
        if kind == "object":
            values = schema.get("additionalProperties")
            return "mapping of names to: " + (self.form(values) if isinstance(values, Mapping) else "any value")
        if kind == "string":
            if "pattern" in schema:
                return f"`{OWN_CLASS}`" if ":" in schema["pattern"] else f"text like `{schema['pattern']}`"
            return ("path" if schema.get("format") == "path" else "text") + _size(schema, "characters")
        if kind == "boolean":
            return "`true` or `false`"
        return f"{kind}{_range(schema)}" if kind else "any value"


def _numeric(schema: Any) -> bool:
    """Whether a number can be written for it."""
    if not isinstance(schema, Mapping):
        return False
    if schema.get("type") in ("integer", "number"):
        return True
    nested = [schema.get("items"), schema.get("additionalProperties"), *schema.get("prefixItems", ())]
    return any(_numeric(one) for one in (*nested, *schema.get("anyOf", ()), *schema.get("oneOf", ())))


def literal(value: Any) -> str:
    """A value as it stands in YAML, as code."""
    if isinstance(value, str):
        return f"`{value}`" if value else '`""`'
    if isinstance(value, float) and value == int(value) and abs(value) < 1e15:
        return f"`{value:.1f}`"
    return f"`{json.dumps(value)}`"


def reference() -> Reference:
    """The keys of an experiment file."""
    return Reference()


def _models() -> Iterator[type[BaseModel]]:
    waiting = [BaseModel]
    while waiting:
        for kind in waiting.pop().__subclasses__():
            yield kind
            waiting.append(kind)


def _default(model: type[BaseModel] | None, name: str, schema: Schema) -> Any:
    """Return the default of a key; None for a section, which has the defaults of its keys."""
    if "default" in schema:
        return schema["default"]
    declared = model.model_fields.get(name) if model else None
    value = declared.get_default(call_default_factory=True, validated_data={}) if declared else None
    return None if isinstance(value, BaseModel) else value


def _joined(known: tuple[Variant, ...], new: Variant) -> tuple[Variant, ...]:
    """`known` with one more; variants that differ in the alternative alone are one."""
    for at, one in enumerate(known):
        if replace(one, alternatives=()) == replace(new, alternatives=()):
            conditions = (*one.alternatives, *(a for a in new.alternatives if a not in one.alternatives))
            return (*known[:at], replace(one, alternatives=conditions), *known[at + 1 :])
    return (*known, new)


def _chosen_by(schema: Schema, sections: list[Any]) -> tuple[str, str] | None:
    """The key and value that tell this alternative from the others."""
    for name, value in schema["properties"].items():
        everywhere = all(name in other["properties"] for other, _, _ in sections)
        if everywhere and "const" in value:
            return name, str(value["const"])
        if everywhere and "enum" in value and _tells_apart(name, value["enum"], sections):
            return name, " or ".join(map(str, value["enum"]))
        if everywhere and "pattern" in value:
            return name, OWN_CLASS
    for name in schema.get("required", ()):
        if not any(name in other["properties"] for other, _, _ in sections if other is not schema):
            return name, ""
    return None


def _tells_apart(name: str, values: list[Any], sections: list[Any]) -> bool:
    """Whether no other alternative may have one of these values for the key."""
    others = [other["properties"][name] for other, _, _ in sections if other["properties"][name].get("enum") != values]
    return bool(others) and all("const" in other and other["const"] not in values for other in others)


def _summary(schema: Schema) -> str:
    return inspect.cleandoc(schema.get("description", "")).partition("\n\n")[0].replace("\n", " ")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def _range(schema: Schema) -> str:
    lower, upper = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    limits = []
    if lower is not None and upper is not None:
        return f", {_number(lower)} to {_number(upper)}"
    if lower is not None:
        limits.append(f"{_number(lower)} or more")
    if above is not None:
        limits.append(f"more than {_number(above)}")
    if upper is not None:
        limits.append(f"at most {_number(upper)}")
    if below is not None:
        limits.append(f"less than {_number(below)}")
    return "".join(f", {one}" for one in limits)


def _size(schema: Schema, of: str = "entries") -> str:
    least = schema.get("minItems", schema.get("minLength", 0))
    most = schema.get("maxItems", schema.get("maxLength"))
    if most is not None:
        return f" ({least or 'up'} to {most} {of})"
    return " (not empty)" if least else ""
