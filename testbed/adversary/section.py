"""The experiment's `adversary:` section: who is dishonest, and which decisions are overridden in which rounds."""

import difflib
import math
import re
from fractions import Fraction
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from testbed.adversary.catalogue import kinds_of, names
from testbed.adversary.misbehaviour import AttackContext, Misbehaviour, MisbehaviourOptions
from testbed.plugins.classes import PLUGIN_NAME
from testbed.plugins.options import unknown
from testbed.randomness import Randomness

Named = str | dict[str, dict[str, Any]]
Party = Literal["server", "clients"]
PARTIES: tuple[Party, ...] = ("server", "clients")
_TRAINING = "train"  # what client misbehaviours name that belong to no selection or aggregation protocol


class AdversarySection(BaseModel):
    """A malicious server and dishonest clients that work together; who is not named here is honest."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    dishonest: (
        Annotated[int, Field(ge=0)]
        | Annotated[float, Field(ge=0, le=1)]
        | Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    ) = Field(
        0.1,
        description="The dishonest clients: a number of them, a share of the population with a decimal point (drawn by "
        "the seed), or a list of client numbers",
    )
    server: list[Named] = Field(
        default_factory=list,
        description="What the server does otherwise than the protocol says: names, each may have options, "
        f"{{name: {{option: value}}}}; {', '.join(names('server'))}, or package.module:Class",
    )
    clients: list[Named] = Field(
        default_factory=list,
        description=f"What the dishonest clients do: {', '.join(names('clients'))}, or package.module:Class",
    )
    from_round: int = Field(1, gt=0, description="The first round that is attacked")
    every: int = Field(1, gt=0, description="Of the rounds from then on, every so many-th is attacked")

    @field_validator("server", "clients", mode="before")
    @classmethod
    def _entries(cls, given: Any) -> Any:
        """One alone is a list of one; options that are null are none."""
        entries = [given] if isinstance(given, str | dict) else given
        if not isinstance(entries, list):
            return entries
        plain = [
            {name: {} if more is None else more for name, more in one.items()} if isinstance(one, dict) else one
            for one in entries
        ]
        if not all(isinstance(one, str) or _is_name_with_options(one) for one in plain):
            raise ValueError("an entry is a name, or one name with its options: {name: {option: value}}")
        return plain

    @field_validator("server", "clients")
    @classmethod
    def _known(cls, given: list[Named], info: Any) -> list[Named]:
        party = info.field_name
        seen: set[str] = set()
        for one in given:
            name = name_of(one)
            if name in seen:
                raise ValueError(f"duplicate {name}")
            seen.add(name)
            if ":" in name and re.match(PLUGIN_NAME, name):
                continue
            kinds = kinds_of(party, name)
            if not kinds:
                close = difflib.get_close_matches(name, names(party), n=1)
                hint = f"did you mean {close[0]!r}? " if close else ""
                allowed = ", ".join(names(party))
                raise ValueError(f"unknown {name!r}; {hint}allowed: {allowed}, or package.module:Class")
            options(kinds[0], one)
        return given

    def named(self, party: Party) -> list[Named]:
        """The misbehaviours of a party."""
        return self.server if party == "server" else self.clients

    def check(self, population: int, selection: str, aggregation: str) -> None:
        """Raise `ValueError` (one line: key, what is allowed) for what does not fit the rest of the experiment."""
        if isinstance(self.dishonest, list):
            beyond = [client for client in self.dishonest if client >= population]
            if beyond:
                raise ValueError(f"dishonest: client {beyond[0]} of a population of {population}, counted from 0")
            if len(set(self.dishonest)) != len(self.dishonest):
                raise ValueError("dishonest: a duplicate client")
        elif self.number_of(population) > population:
            raise ValueError(f"dishonest: {self.dishonest} of a population of {population}; at most {population}")
        own = ":" in selection + aggregation  # what applies to a user-defined protocol is known where its class is
        protocols = {selection, aggregation, _TRAINING}
        for party in PARTIES:
            for one in self.named(party):
                name = name_of(one)
                if not (":" in name or own or name in names(party, protocols)):
                    where = f"selection {selection} with aggregation {aggregation}"
                    allowed = ", ".join(names(party, protocols)) or "none"
                    raise ValueError(f"{party}: {name} does not apply to {where}; allowed: {allowed}")
                for kind in kinds_of(party, name):
                    if own or protocols & set(kind.applies_to):
                        self.check_options(party, name, options(kind, one), population)

    def check_options(self, party: str, name: str, chosen: MisbehaviourOptions, population: int) -> None:
        """Raise `ValueError` (one line) for options of a misbehaviour that can never happen in this experiment."""
        try:
            chosen.check(population, frozenset(self.dishonest) if isinstance(self.dishonest, list) else frozenset())
        except ValueError as error:
            raise ValueError(f"{party}: {name}.{error}") from None

    def without_own(self) -> "AdversarySection":
        """The same without user-defined misbehaviours."""
        kept: dict[str, Any] = {
            party: [one for one in self.named(party) if ":" not in name_of(one)] for party in PARTIES
        }
        return self.model_copy(update=kept)

    def attacks(self, round_number: int) -> bool:
        """Whether this round is to be attacked; in the others everybody behaves."""
        return AttackContext(frozenset(), from_round=self.from_round, every=self.every).attacks(round_number)

    def number_of(self, population: int) -> int:
        """c, how many clients are dishonest; a share is rounded up."""
        if isinstance(self.dishonest, list):
            return len(self.dishonest)
        if isinstance(self.dishonest, int):
            return self.dishonest
        return math.ceil(Fraction(str(self.dishonest)) * population)

    def drawn(self, population: int, randomness: Randomness) -> frozenset[int]:
        """The dishonest clients: the same for the same seed, however clients are spread over hosts."""
        if isinstance(self.dishonest, list):
            return frozenset(self.dishonest)
        generator = randomness.generator("adversary", 0, "dishonest")
        drawn = generator.choice(np.arange(population), self.number_of(population), replace=False)
        return frozenset(drawn.tolist())


def _is_name_with_options(one: Any) -> bool:
    return (
        isinstance(one, dict)
        and len(one) == 1
        and all(isinstance(name, str) and isinstance(more, dict) for name, more in one.items())
    )


def name_of(one: Named) -> str:
    """The name in an entry of `server` or `clients`."""
    return next(iter(one)) if isinstance(one, dict) else one


def options(kind: type[Misbehaviour], one: Named) -> Any:
    """The options in an entry, as `kind` has them; raises `ValueError` (one line) for what it does not have."""
    given = next(iter(one.values())) if isinstance(one, dict) else {}
    try:
        return kind.Options.model_validate(given, strict=True)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in problem["loc"][:1])
        if problem["type"] == "extra_forbidden":
            raise ValueError(f"{name_of(one)}.{key}: {unknown(key, tuple(kind.Options.model_fields))}") from None
        message = str(problem["msg"]).replace("Input should be", "should be")
        raise ValueError(f"{name_of(one)}.{key}: {message}, not {problem['input']!r}") from None
