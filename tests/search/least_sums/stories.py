"""The server's choices in `secagg` at any size, by counts: each client is told one of two sets of survivors.

Everybody has masked with everybody, so that clients that are told the same, and are in the same sets, are alike. The
program counts them by kind. A set of survivors of which t clients hear has their shares: of the seeds of those in it,
and of the mask keys of the others. The server has a single update if it has both secrets of one client, or the sum over
all honest clients whose mask keys it lacks, if it has their seeds.
"""

from dataclasses import dataclass
from itertools import product

from tests.search.least_sums.programs import Program


@dataclass(frozen=True)
class Least:
    """The honest clients in the least sum, and the solver's nodes."""

    size: int
    nodes: int


def least_by_stories(honest: int, accomplices: int, threshold: int) -> Least:
    """The least sum that the server has; one more than there are honest clients if it has none."""
    program, sets = Program(), range(2)
    kinds = [
        (told, inside)
        for told, inside in product((None, *sets), product((False, True), repeat=2))
        if told is None or inside[told]
    ]
    count = {kind: program.integer(honest) for kind in kinds}
    program.at_most(dict.fromkeys(count.values(), 1), honest)
    program.at_least(dict.fromkeys(count.values(), 1), honest)
    heard, needed = [], threshold - accomplices
    for story in sets:
        complete, signers = program.binary(), program.integer(honest)
        told = {count[kind]: -1 for kind in kinds if kind[0] == story}
        program.at_most({signers: 1, **told}, 0)
        program.at_most({signers: 1, complete: -honest}, 0)
        program.at_most({complete: needed, **told}, 0)
        inside = {count[kind]: 1 for kind in kinds if kind[1][story]}
        program.at_least({**inside, complete: -needed}, 0)
        heard.append(signers)
    single, size, hidden = program.binary(), program.integer(honest), {}
    singles = []
    for kind in kinds:
        there, seed, key, alone = (program.binary() for _ in range(4))
        program.at_most({count[kind]: 1, there: -honest}, 0)
        program.at_most({there: 1, count[kind]: -1}, 0)
        program.at_least({**{heard[story]: 1 for story in sets if kind[1][story]}, seed: -needed}, 0)
        program.at_least({**{heard[story]: 1 for story in sets if not kind[1][story]}, key: -needed}, 0)
        for needs in (there, seed, key):
            program.implies(alone, needs)
        singles.append(alone)
        program.at_most({there: 1, key: -1, seed: -1, single: -1}, 0)
        hidden[kind] = program.integer(honest)
        program.at_least({hidden[kind]: 1, count[kind]: -1, key: honest}, 0)
        program.at_most({hidden[kind]: 1, count[kind]: -1}, 0)
        program.at_most({hidden[kind]: 1, key: honest}, honest)
    program.at_least({**dict.fromkeys(singles, 1), single: -1}, 0)
    program.at_least({size: 1, **dict.fromkeys(hidden.values(), -1), single: honest}, 0)
    program.at_least({**dict.fromkeys(hidden.values(), 1), single: 1}, 1)
    program.at_least({size: 1}, 1)
    found = program.minimise({size: 1})
    assert found.is_exact
    return Least(found.at(size) if found.values else honest + 1, max(1, found.nodes))
