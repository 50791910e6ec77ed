"""Claims about other clients: only a few different *stories*, because an attack needs several clients with the same."""

from collections.abc import Collection, Iterable

from testbed.batches import Batches
from tests.search.choices import Choices

Group = frozenset[int]


def units(clients: Iterable[int], batches: Batches | None, accomplices: Collection[int]) -> list[list[int]]:
    """Return whole batches if there are batches, otherwise single clients; accomplices first."""
    kept = list(dict.fromkeys(clients))
    if batches is None:
        return [[client] for client in sorted(kept, key=lambda one: (one not in accomplices, one))]
    return [batches.members([batch]).tolist() for batch in batches.whole(sorted(kept))]


def told(choices: Choices, of: list[list[int]], clients: list[int], fewest: int) -> dict[int, Group]:
    """Return for each client some members of `of`: all (0), two stories, one each, a few, one for all.

    Args:
        choices: the decisions.
        of: the units that stories consist of.
        clients: recipients.
        fewest: with fewer, clients stop; most stories have at least this many.
    """
    members = sorted({client for unit in of for client in unit})
    form = choices.pick(5)
    if form == 0 or not clients or not of:
        return dict.fromkeys(clients, frozenset(members))
    largest = max(len(unit) for unit in of)
    least = 0 if choices.pick(2, 0.8) else fewest
    by_units = largest > 1 and not choices.pick(2, 0.7)

    def story() -> Group:
        if not by_units:
            return choices.some(members, least)
        taken = choices.some(range(len(of)), -(-least // largest))
        return frozenset(client for unit in taken for client in of[unit])

    if form == 2:
        others = {client: [one for one in members if one != client] for client in clients}
        return {client: choices.exactly(others[client], least - 1) | {client} for client in clients}
    if form == 4:
        return dict.fromkeys(clients, story())
    found = [frozenset(members) if form == 1 else story(), *(story() for _ in range(1 if form == 1 else 2))]
    parts = choices.parted(clients, len(found))
    return {client: found[parts[client]] for client in clients}
