"""The `adversary:` section: dishonest clients, overridden decisions and attacked rounds; and the resulting classes."""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from testbed.adversary.catalogue import kinds_of, names
from testbed.adversary.clients import SkipNoise
from testbed.adversary.misbehaviour import (
    SERVER_KINDS,
    AttackContext,
    ClientMisbehaviour,
    Misbehaviour,
    MisbehaviourOptions,
    ServerMisbehaviour,
    dishonest_role,
    malicious_server,
)
from testbed.counts import rounded_up
from testbed.errors import ExperimentError
from testbed.parties.client import RoleSpec
from testbed.plugins.classes import PLUGIN_NAME, check_members, plugin_class
from testbed.plugins.options import unknown
from testbed.randomness import Randomness
from testbed.spelling import did_you_mean
from testbed.workload.contract import ReplaceableSamplesWorkload, Workload
from testbed.workload.section import WorkloadSection

Named = str | dict[str, dict[str, Any]]
Party = Literal["server", "clients"]
PARTIES: tuple[Party, ...] = ("server", "clients")
_TRAINING = "train"  # `applies_to` of client misbehaviours outside of selection and aggregation


class AdversarySection(BaseModel):
    """A malicious server and dishonest clients that collude; all other parties are honest."""

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
        description="Misbehaviours of the server: names, each with optional options, "
        f"{{name: {{option: value}}}}; {', '.join(names('server'))}, or package.module:Class",
    )
    clients: list[Named] = Field(
        default_factory=list,
        description=f"Misbehaviours of the dishonest clients: {', '.join(names('clients'))}, or package.module:Class",
    )
    from_round: int = Field(1, gt=0, description="The first attacked round")
    every: int = Field(1, gt=0, description="Attack every n-th round from then on")

    @field_validator("server", "clients", mode="before")
    @classmethod
    def _entries(cls, value: Any) -> Any:
        """Accept a single entry for a list, and null for empty options."""
        entries = [value] if isinstance(value, str | dict) else value
        if not isinstance(entries, list):
            return entries
        plain = [
            {name: {} if more is None else more for name, more in entry.items()} if isinstance(entry, dict) else entry
            for entry in entries
        ]
        if not all(isinstance(entry, str) or _is_name_with_options(entry) for entry in plain):
            raise ValueError("an entry is a name, or one name with its options: {name: {option: value}}")
        return plain

    @field_validator("server", "clients")
    @classmethod
    def _check_names(cls, entries: list[Named], info: Any) -> list[Named]:
        party = info.field_name
        earlier: set[str] = set()
        for entry in entries:
            name = name_of(entry)
            if name in earlier:
                raise ValueError(f"duplicate {name}")
            earlier.add(name)
            if ":" in name and re.match(PLUGIN_NAME, name):
                continue
            kinds = kinds_of(party, name)
            if not kinds:
                hint = did_you_mean(name, names(party))
                allowed = ", ".join(names(party))
                raise ValueError(f"unknown {name!r}; {hint}allowed: {allowed}, or package.module:Class")
            accepting_classes(kinds, entry)
        return entries

    def named(self, party: Party) -> list[Named]:
        """Return the entries of a party."""
        return self.server if party == "server" else self.clients

    def depending_on_rounds(self) -> str:
        """Return the first misbehaviour that depends on the number of rounds, with its party; empty if there is none.

        Every user-defined misbehaviour counts, because its class is not imported here.
        """
        for party in PARTIES:
            for name in map(name_of, self.named(party)):
                if ":" in name or any(kind.depends_on_rounds for kind in kinds_of(party, name)):
                    return f"{party}: {name}"
        return ""

    def check(self, population: int, selection: str, aggregation: str) -> None:
        """Check that the section fits the rest of the experiment.

        Args:
            population: number of clients n.
            selection: name of the selection protocol.
            aggregation: name of the aggregation protocol.

        Raises:
            ValueError: it does not (one line with the key and the allowed values).
        """
        if isinstance(self.dishonest, list):
            beyond = [client for client in self.dishonest if client >= population]
            if beyond:
                raise ValueError(f"dishonest: client {beyond[0]} of a population of {population}, counted from 0")
            if len(set(self.dishonest)) != len(self.dishonest):
                raise ValueError("dishonest: a duplicate client")
        elif self.number_of(population) > population:
            raise ValueError(f"dishonest: {self.dishonest} of a population of {population}; at most {population}")
        own = ":" in selection + aggregation  # user-defined protocols are checked when their class is imported
        protocols = {selection, aggregation, _TRAINING}
        for party in PARTIES:
            for entry in self.named(party):
                name = name_of(entry)
                if not (":" in name or own or name in names(party, protocols)):
                    where = f"selection {selection} with aggregation {aggregation}"
                    allowed = ", ".join(names(party, protocols)) or "none"
                    raise ValueError(f"{party}: {name} does not apply to {where}; allowed: {allowed}")
                if ":" in name:
                    continue
                kinds = kinds_of(party, name)
                try:
                    if own:
                        candidates = list(accepting_classes(kinds, entry).values())
                    else:
                        candidates = [options(kind, entry) for kind in kinds if protocols & set(kind.applies_to)]
                except ValueError as error:
                    raise ValueError(f"{party}: {error}") from None
                for chosen in candidates:
                    self.check_options(party, name, chosen, population)

    def check_options(self, party: str, name: str, chosen: MisbehaviourOptions, population: int) -> None:
        """Check that the options of a misbehaviour can take effect in this experiment.

        Args:
            party: "server" or "clients".
            name: of the misbehaviour.
            chosen: its options.
            population: number of clients n.

        Raises:
            ValueError: they never can (one line).
        """
        try:
            chosen.check(population, frozenset(self.dishonest) if isinstance(self.dishonest, list) else frozenset())
        except ValueError as error:
            raise ValueError(f"{party}: {name}.{error}") from None

    def without_own(self) -> "AdversarySection":
        """Return the section without user-defined misbehaviours."""
        built_in: dict[str, Any] = {
            party: [entry for entry in self.named(party) if ":" not in name_of(entry)] for party in PARTIES
        }
        return self.model_copy(update=built_in)

    def attacks(self, round_number: int) -> bool:
        """Return whether this round is attacked; in other rounds all parties are honest."""
        return AttackContext(frozenset(), from_round=self.from_round, every=self.every).attacks(round_number)

    def number_of(self, population: int) -> int:
        """Return c, the number of dishonest clients; a share is rounded up."""
        if isinstance(self.dishonest, list):
            return len(self.dishonest)
        return rounded_up(self.dishonest, population)

    def draw_dishonest(self, population: int, randomness: Randomness) -> frozenset[int]:
        """Return the dishonest clients: the same for the same seed, independent of the number of hosts.

        Args:
            population: number of clients n.
            randomness: the experiment's.
        """
        if isinstance(self.dishonest, list):
            return frozenset(self.dishonest)
        # One draw for the whole run, by the seed alone: compared runs have the same dishonest clients.
        generator = randomness.generator("adversary", 0, "dishonest")
        chosen = generator.choice(np.arange(population), self.number_of(population), replace=False)
        return frozenset(chosen.tolist())


def _is_name_with_options(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and len(entry) == 1
        and all(isinstance(name, str) and isinstance(more, dict) for name, more in entry.items())
    )


def name_of(entry: Named) -> str:
    """Return the name in an entry of `server` or `clients`."""
    return next(iter(entry)) if isinstance(entry, dict) else entry


def options(kind: type[Misbehaviour], entry: Named) -> Any:
    """Return the options in an entry, validated by a misbehaviour class.

    Args:
        kind: the misbehaviour.
        entry: an entry of `server` or `clients`.

    Raises:
        ValueError: the class has no such option, or a value is not allowed (one line).
    """
    values = next(iter(entry.values())) if isinstance(entry, dict) else {}
    try:
        return kind.Options.model_validate(values, strict=True)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in problem["loc"][:1])
        if problem["type"] == "extra_forbidden":
            raise ValueError(f"{name_of(entry)}.{key}: {unknown(key, tuple(kind.Options.model_fields))}") from None
        message = str(problem["msg"]).replace("Input should be", "should be")
        raise ValueError(f"{name_of(entry)}.{key}: {message}, not {problem['input']!r}") from None


def accepting_classes(kinds: Sequence[type[Misbehaviour]], entry: Named) -> dict[type[Misbehaviour], Any]:
    """Return the classes with one name that accept the options of an entry, each with its options.

    Classes with the same name may have different options, for different protocols.

    Args:
        kinds: the classes.
        entry: an entry of `server` or `clients`.

    Raises:
        ValueError: no class accepts the options (one line, of the class with the most options).
    """
    accepted: dict[type[Misbehaviour], Any] = {}
    refusals: list[tuple[int, ValueError]] = []
    for kind in kinds:
        try:
            accepted[kind] = options(kind, entry)
        except ValueError as error:
            refusals.append((len(kind.Options.model_fields), error))
    if not accepted:
        # The class with the most options names the most allowed keys.
        raise max(refusals, key=lambda refusal: refusal[0])[1]
    return accepted


# -- the resulting classes ---------------------------------------------------------------------------------------------


class Adversary:
    """Servers and clients of an experiment with an `adversary:` section.

    Args:
        section: the section.
        population: number of clients n.
        rounds: rounds of the experiment.
        randomness: the experiment's; draws the dishonest clients.
        enough_to_break: dishonest participants that break the aggregation.

    Attributes:
        dishonest: numbers of the dishonest clients.

    Raises:
        ExperimentError: a user-defined class cannot be found, is no misbehaviour, or does not accept its options.
    """

    def __init__(
        self, section: AdversarySection, population: int, rounds: int, randomness: Randomness, enough_to_break: int = 1
    ) -> None:
        self.dishonest = section.draw_dishonest(population, randomness)
        options_by_kind: dict[type[Misbehaviour], Any] = {}
        self._server = {name_of(entry): _classes("server", entry, options_by_kind) for entry in section.server}
        self._clients = {name_of(entry): _classes("clients", entry, options_by_kind) for entry in section.clients}
        for party, kinds in (("server", self._server), ("clients", self._clients)):
            for name, (first, *_) in kinds.items():
                if ":" not in name:  # checked with the experiment
                    continue
                try:
                    section.check_options(party, name, options_by_kind[first], population)
                except ValueError as error:
                    raise ExperimentError(f"adversary.{error}") from None
        self._context = AttackContext(
            self.dishonest, options_by_kind, rounds, section.from_round, section.every, enough_to_break
        )
        self._unused = set(self._server)

    @property
    def skips_noise(self) -> frozenset[int]:
        """The clients that add no noise in attacked rounds."""
        kinds = [kind for classes in self._clients.values() for kind in classes]
        return self.dishonest if any(issubclass(kind, SkipNoise) for kind in kinds) else frozenset()

    def with_attacks(self, honest: Any, protocols: Iterable[str]) -> Any:
        """Return the server class that runs instead of `honest`.

        Args:
            honest: the honest server class.
            protocols: names of the protocols that it implements.
        """
        decided, kinds = set(protocols), []
        for name, classes in self._server.items():
            # One class of a name for a server: others of the same name are for other protocols.
            for kind in [kind for kind in classes if decided & set(kind.applies_to)][:1]:
                _check_overrides(name, kind, honest)
                kinds.append(kind)
                self._unused.discard(name)
        return malicious_server(honest, kinds, self._context)

    def roles(self, specs: Sequence[RoleSpec]) -> list[RoleSpec]:
        """Return `specs` followed by the roles of the dishonest clients, which also extend accomplices' roles."""
        more = []
        for spec in specs:
            kinds = [kind for classes in self._clients.values() for kind in classes if kind.concerns(spec)]
            if kinds:
                only = self.dishonest if spec.only is None else spec.only & self.dishonest
                more.append(RoleSpec(dishonest_role(spec.role, kinds, self._context), spec.parameters, only))
        return [*specs, *more]

    def check_learning(self, section: WorkloadSection) -> None:
        """Raise `ExperimentError` for a misbehaviour that is impossible with this `workload:` section."""
        for kind in self._context.options:
            kind.check_learning(section)

    def check_workload(self, workload: Workload) -> None:
        """Raise `ExperimentError` for a misbehaviour that is impossible with this workload."""
        for kind, chosen in self._context.options.items():
            kind.check_workload(workload, chosen)

    def success(self, workload: Workload, model: npt.NDArray[np.float32]) -> float | None:
        """Return the attack's success: the share of the attacked held-out samples with the intended prediction.

        Args:
            workload: with the held-out samples.
            model: `(d,)` parameters.

        Returns:
            None if no misbehaviour has such an aim, or no such sample is held out. The first misbehaviour with an aim
            counts.
        """
        for kind in (kind for classes in self._clients.values() for kind in classes):
            change = kind.attacked_samples(self._context.options_of(kind))
            if change is not None and isinstance(workload, ReplaceableSamplesWorkload):
                evaluation = workload.with_samples(change).evaluate(model)
                if evaluation is None or math.isnan(evaluation.accuracy):
                    return None
                return float(evaluation.accuracy)
        return None

    def check_used(self, specs: Sequence[RoleSpec]) -> None:
        """Raise `ExperimentError` for a misbehaviour that applies to no server and no role of the run.

        Args:
            specs: roles of the run.
        """
        idle = [("server", name) for name in self._server if name in self._unused]
        idle += [
            ("clients", name)
            for name, classes in self._clients.items()
            if not any(kind.concerns(spec) for spec in specs for kind in classes)
        ]
        for party, name in idle:
            raise ExperimentError(f"adversary.{party}: {name} applies to none of this run's protocols; leave it out")


def _check_overrides(name: str, kind: type[ServerMisbehaviour], honest: type) -> None:
    if not issubclass(honest, kind.overrides):
        raise ExperimentError(
            f"adversary.server: {name} overrides decisions of {kind.overrides.__name__} and applies to "
            f"{', '.join(kind.applies_to)}; {honest.__name__} is no {kind.overrides.__name__}"
        )


def _classes(party: str, entry: Named, options_by_kind: dict[type[Misbehaviour], Any]) -> list[Any]:
    """Return the classes that an entry names; store the options of each in `options_by_kind`."""
    name = name_of(entry)
    kinds: list[Any] = [_plugin(party, name)] if ":" in name else kinds_of(party, name)
    try:
        accepted = accepting_classes(kinds, entry)
    except ValueError as error:
        raise ExperimentError(f"adversary.{party}: {error}") from None
    options_by_kind |= accepted
    return list(accepted)


def _plugin(party: str, name: str) -> Any:
    """Return the user-defined class of this name after checking that it defines all that a misbehaviour needs."""
    where = f"adversary.{party}: {name}"
    kind: Any = plugin_class(name, f"adversary.{party}")
    bases = tuple(SERVER_KINDS) if party == "server" else (ClientMisbehaviour,)
    if not (isinstance(kind, type) and issubclass(kind, bases)):
        allowed = " or ".join(f"{base.__module__}.{base.__name__}" for base in bases)
        raise ExperimentError(f"{where} is no subclass of {allowed}")
    needed = ["name", "applies_to"]
    if party == "clients":  # `extends` is needed for the default of `concerns` only
        below = kind.__mro__[: kind.__mro__.index(ClientMisbehaviour)]
        needed = ["name"] if any("concerns" in vars(base) for base in below) else ["name", "extends"]
    if lacking := [attribute for attribute in needed if not hasattr(kind, attribute)]:
        raise ExperimentError(f"{where}: lacks {', '.join(lacking)}; see testbed.adversary.misbehaviour")
    if party == "server" and isinstance(kind.applies_to, str):
        raise ExperimentError(f"{where}: applies_to: names in a tuple, not {kind.applies_to!r}")
    check_members(kind, where)
    return kind
