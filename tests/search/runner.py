"""Play servers against honest clients until a budget is spent, and report violations.

python -m tests.search --seconds 600 --seed 1
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from time import process_time
from typing import Any

from tests.search import beacon
from tests.search.bounds import violations
from tests.search.choices import Choices, fewer
from tests.search.knowledge import Knowledge
from tests.search.selecting import Selecting
from tests.search.summing import Summing
from tests.search.summing_among_neighbours import SummingAmongNeighbours
from tests.search.world import Clients, Federation, Mix, remembered


@dataclass
class Play:
    """One server's decisions and their outcome.

    Attributes:
        decisions: sufficient to replay.
        violations: one line each.
        clients: the honest clients at the end.
        knowledge: the server's knowledge.
    """

    decisions: list[int]
    violations: list[str]
    clients: Clients
    knowledge: Knowledge


@dataclass
class Found:
    """The results of a search in one mix.

    Attributes:
        mix: searched.
        plays: servers played.
        questions: asked of honest clients.
        states: distinct ones; clients with equal histories are interchangeable.
        refusals: failed checks, with counts.
        violations: by kind, the first line of it and its decisions.
    """

    mix: Mix
    plays: int = 0
    questions: int = 0
    inputs: int = 0
    states: set[int] = field(default_factory=set)
    refusals: Counter[str] = field(default_factory=Counter)
    violations: dict[str, tuple[str, list[int]]] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """One line for the report."""
        return (
            f"{self.mix.name}: {self.plays} servers, {self.questions} questions, {self.inputs} inputs, "
            f"{len(self.states)} distinct states, {len(self.refusals)} checks that refused "
            f"({sum(self.refusals.values())} times)"
        )

    @staticmethod
    def written(decisions: Sequence[int]) -> str:
        """Return decisions as short text: `12*0 1` is twelve zeros and a one."""
        parts = []
        for value, run in groupby(decisions):
            count = len(list(run))
            parts.append(f"{count}*{value}" if count > 2 else " ".join([str(value)] * count))
        return " ".join(parts)

    @staticmethod
    def read(written: str) -> list[int]:
        """Return the decisions of such a text."""
        decisions: list[int] = []
        for part in written.split():
            count, _, value = part.rpartition("*")
            decisions += [int(value)] * int(count or 1)
        return decisions


def play(federation: Federation, choices: Choices) -> Play:
    """Play the rounds of a server with these decisions."""
    clients, knowledge = Clients(federation), Knowledge()
    number, opener = 0, beacon.made_for(federation.plan)
    for _ in range(federation.mix.rounds):
        number = max(1, number + (1, 0, 2, 4)[choices.pick(4, 0.8)])
        clients.begin_round()
        agreed = Selecting(clients, knowledge, choices, number, opener).run() if federation.agrees else None
        if agreed is not None and not agreed:
            continue
        among_neighbours = federation.aggregation.protocol == "secagg-plus"
        server = SummingAmongNeighbours if among_neighbours else Summing
        server(clients, knowledge, choices, number, agreed).run()
    return Play(choices.taken, [*clients.crashes, *violations(federation, knowledge)], clients, knowledge)


def kind_of(violation: str) -> str:
    """Return the kind of a violation."""
    return violation.split(":", 1)[0]


def plays(federation: Federation, seed: int) -> Iterator[Play]:
    """Yield one server after the other: every second one new, the others variants of an earlier successful one.

    Progress is counted in shares (`Knowledge.progress`): a server that lacks one share of a secret is nearly
    successful, which violations alone do not show.
    """
    source = random.Random(f"{seed} {federation.mix.name}")  # noqa: S311
    come_so_far: dict[tuple[object, ...], list[int]] = {}
    while True:
        given: list[int] = []
        if come_so_far and source.random() < 0.5:
            near = max((source.choice(list(come_so_far)) for _ in range(3)), key=nearness)
            given = changed(come_so_far[near], source)
        one = play(federation, Choices(given, source))
        come_so_far.setdefault(one.knowledge.progress, one.decisions)
        yield one


def nearness(progress: tuple[Any, ...]) -> int:
    """Rank shares of mask keys, which an honest round reveals to no one, before shares of seeds."""
    return sum(10 * mask_key + min(mask_key, seed) for mask_key, seed in progress[-1])


def changed(decisions: Sequence[int], source: random.Random) -> list[int]:
    """Return a list of decisions with one to four changed, and possibly another end."""
    given = list(decisions)
    for _ in range(source.randint(1, 4)):
        if given:
            given[source.randrange(len(given))] = source.choice((0, 0, 1, 1, 2, 3, 4, 5))
    return given if source.random() < 0.7 else given[: source.randint(0, len(given))]


def search(mix: Mix, seed: int, count: int | None = None, seconds: float | None = None) -> Found:
    """Play a number of servers (or for some seconds of CPU time) with decisions drawn from `seed`."""
    found, began = Found(mix), process_time()
    with remembered():
        federation = Federation(mix)
        for one in plays(federation, seed):
            enter(found, one)
            if found.plays == count or (seconds is not None and process_time() - began >= seconds):
                break
        for kind, (_, decisions) in list(found.violations.items()):
            short = fewer(decisions, lambda given, kind=kind: _still(federation, given, kind))  # type: ignore[misc]
            lines = play(federation, Choices(short)).violations
            found.violations[kind] = next(line for line in lines if kind_of(line) == kind), short
    return found


def replayed(mix: Mix, written: str) -> str:
    """Return the messages of a server with these decisions, the refusals, and its final knowledge."""
    with remembered():
        federation = Federation(mix)
        one = play(federation, Choices(Found.read(written)))
    lines = []
    for client, told in sorted(one.clients.told.items()):
        lines.append(f"client {client}:")
        for entry in told:
            kind, about, *refused = entry if isinstance(entry, tuple) else (entry, "")
            shown = sorted(about) if isinstance(about, frozenset) else about
            lines.append(f"  {kind} {shown}" + (f" -> refused: {refused[0]}" if refused else ""))
    return "\n".join([*lines, *(one.violations or ["nothing beyond what is promised"])])


def _still(federation: Federation, given: Sequence[int], kind: str) -> bool:
    return any(kind_of(line) == kind for line in play(federation, Choices(given)).violations)


def enter(found: Found, one: Play) -> None:
    """Count a play."""
    found.plays += 1
    found.questions += one.clients.asked
    found.inputs += len(one.knowledge.inputs)
    found.refusals.update(one.clients.refusals)
    found.states.add(state(one.clients))
    for line in one.violations:
        found.violations.setdefault(kind_of(line), (line, one.decisions))


def state(clients: Clients) -> int:
    """Return a number for the histories of the honest clients, invariant under permutations of clients.

    Clients are coloured by their histories, sets in these by the colours of their members, twice.
    """
    accomplices = clients.federation.mix.accomplices
    everybody = range(clients.federation.mix.population)
    colour = {client: hash((client in accomplices,)) for client in everybody}
    for _ in range(3):
        colour = {
            client: hash((colour[client], _coloured(clients.told.get(client, []), colour))) for client in everybody
        }
    return hash(tuple(sorted(colour.values())))


def _coloured(told: object, colour: dict[int, int]) -> int:
    if isinstance(told, frozenset):
        return hash(tuple(sorted(colour.get(client, -1) for client in told)))
    if isinstance(told, (tuple, list)):
        return hash(tuple(_coloured(part, colour) for part in told))
    return hash(told)
