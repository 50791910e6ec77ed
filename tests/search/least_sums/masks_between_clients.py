"""The server's choices in `secagg` and `secagg-plus` as an integer program over single clients.

The server picks, for each honest client u: the peers that u is told have shared (y), and the story that u is told (g),
one of a few sets of survivors (s). Honest clients' checks are the constraints. A client reveals shares (r) once t of
its holders have signed the set that it was told. t shares give a secret: a mask key (of a client that the revealers
were told is gone), or the seed of a self-mask. The server has the sum over a set A of honest clients, if it has their
seeds, and if each of their masks is known or cancels within A. The program finds the least A.

Accomplices sign every set, reveal every share, and know the masks that they have in common with others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.search.least_sums.programs import Program, Solution

STORIES = 2


@dataclass(frozen=True)
class Masking:
    """One round, as far as the program needs it.

    Attributes:
        around: by participant, the participant and its peers: the holders of its shares.
        accomplices: the server's clients among the participants.
        threshold: t, of the holders.
        fewest: survivors that a client believes in, of all participants.
        acknowledges: whether a share of a seed is revealed only to a client that has said that it masks with the
            revealer (`secagg-plus`).
    """

    around: Mapping[int, frozenset[int]]
    accomplices: frozenset[int]
    threshold: int
    fewest: int
    acknowledges: bool

    @property
    def honest(self) -> list[int]:
        """The other participants."""
        return [client for client in self.around if client not in self.accomplices]


@dataclass(frozen=True)
class Plan:
    """The statements that the server makes to each client, and the sum that it has then.

    Attributes:
        shared: by honest client, the peers that it is told have shared.
        told: by honest client, the story that it is told; a client that is missing is asked nothing.
        reveals: honest clients that are asked for shares.
        survivors: of each story.
        members: the honest clients in the sum.
        is_exact: whether no smaller sum can be had, as the solver has proven.
        nodes: that the solver needed.
    """

    shared: Mapping[int, frozenset[int]]
    told: Mapping[int, int]
    reveals: frozenset[int]
    survivors: Sequence[frozenset[int]]
    members: frozenset[int]
    is_exact: bool
    nodes: int


class _Choices:
    """The variables and constraints for one round."""

    def __init__(self, masking: Masking, stories: int) -> None:
        self.masking, self.stories, self.program = masking, range(stories), Program()
        program, honest = self.program, masking.honest
        self.peers = {u: [v for v in sorted(masking.around[u]) if v != u and v in set(honest)] for u in honest}
        self.x = {u: len(masking.around[u] & masking.accomplices) for u in honest}
        self.shared = {(u, v): program.binary() for u in honest for v in self.peers[u]}
        self.told = {(u, j): program.binary() for u in honest for j in self.stories}
        self.survives = {(u, j): program.binary() for u in honest for j in self.stories}
        self.reveals = {(u, j): program.binary() for u in honest for j in self.stories}
        self.seed = {u: program.binary() for u in honest}
        self.key = {u: program.binary() for u in honest}
        self.member = {u: program.binary() for u in honest}
        for client in honest:
            self._checks_of(client)
        self._enough_survive()
        for client in honest:
            self._secrets_of(client)
            self._masks_of(client)
        program.at_least(dict.fromkeys(self.member.values(), 1), 1)

    def _checks_of(self, u: int) -> None:
        """The checks of an honest client."""
        program, t = self.program, self.masking.threshold
        program.at_least({self.shared[u, v]: 1 for v in self.peers[u]}, t - 1 - self.x[u])
        program.at_most({self.told[u, j]: 1 for j in self.stories}, 1)
        for j in self.stories:
            told, reveals = self.told[u, j], self.reveals[u, j]
            program.implies(told, self.survives[u, j])
            program.implies(reveals, told)
            for v in self.peers[u]:  # survivors have shared, as u was told
                program.at_most({self.survives[v, j]: 1, self.shared[u, v]: -1, told: 1}, 1)
            around = {self.survives[v, j]: 1 for v in (u, *self.peers[u])}
            program.at_least({**around, told: -(t - self.x[u])}, 0)
            signers = {self.told[v, j]: 1 for v in (u, *self.peers[u])}
            program.at_least({**signers, reveals: -(t - self.x[u])}, 0)

    def _enough_survive(self) -> None:
        least = self.masking.fewest - len(self.masking.accomplices)
        for j in self.stories:
            all_of = {self.survives[u, j]: 1 for u in self.masking.honest}
            for u in self.masking.honest:
                self.program.at_least({**all_of, self.told[u, j]: -least}, 0)

    def _secrets_of(self, v: int) -> None:
        """t shares of a kind, the accomplices' among them, give the secret."""
        program, needed = self.program, self.masking.threshold - self.x[v]
        seeds, keys = [], []
        for u in (v, *self.peers[v]):
            for j in self.stories:
                seed, key = program.binary(), program.binary()
                for share in (seed, key):
                    program.implies(share, self.reveals[u, j])
                    if u != v:
                        program.implies(share, self.shared[u, v])
                program.implies(seed, self.survives[v, j])
                program.at_most({key: 1, self.survives[v, j]: 1}, 1)
                if u != v and self.masking.acknowledges:
                    program.implies(seed, self.shared[v, u])
                seeds.append(seed)
                keys.append(key)
        program.at_least({**dict.fromkeys(seeds, 1), self.seed[v]: -needed}, 0)
        program.at_least({**dict.fromkeys(keys, 1), self.key[v]: -needed}, 0)

    def _masks_of(self, v: int) -> None:
        """A member's masks are known, or cancel with another member's."""
        program = self.program
        program.implies(self.member[v], self.seed[v])
        for w in self.peers[v]:
            cancels = program.binary()
            program.implies(cancels, self.member[w])
            program.implies(cancels, self.shared[w, v])
            known = {cancels: -1, self.key[v]: -1, self.key[w]: -1}
            program.at_most({self.member[v]: 1, self.shared[v, w]: 1, **known}, 1)

    def plan(self, found: Solution) -> Plan | None:
        """The plan in the solver's values; None: there are none."""
        if not found.values:
            return None
        honest, accomplices = self.masking.honest, self.masking.accomplices

        def chosen(variables: Mapping[int, int]) -> frozenset[int]:
            return frozenset(client for client, variable in variables.items() if found.at(variable))

        shared = {
            u: chosen({v: self.shared[u, v] for v in self.peers[u]}) | (accomplices & self.masking.around[u])
            for u in honest
        }
        told = {u: j for u in honest for j in self.stories if found.at(self.told[u, j])}
        reveals = frozenset(u for u in honest for j in self.stories if found.at(self.reveals[u, j]))
        survivors = [chosen({u: self.survives[u, j] for u in honest}) | accomplices for j in self.stories]
        return Plan(shared, told, reveals, survivors, chosen(self.member), found.is_exact, found.nodes)


def least_sum(masking: Masking, stories: int = STORIES) -> Plan | None:
    """The choices with which the server has a sum over the fewest honest clients; None: it has none."""
    choices = _Choices(masking, stories)
    return choices.plan(choices.program.minimise(dict.fromkeys(choices.member.values(), 1)))
