"""How the server of `flamingo` has the seeds of the masks that are left in the sum, from what members have opened."""

from collections import defaultdict
from collections.abc import Mapping

from testbed.aggregation.flamingo.round import Edge, FlamingoRound
from testbed.crypto import InvalidShares, OpeningFailed, feldman, threshold_elgamal
from testbed.crypto.shamir import LagrangeWeights
from testbed.crypto.threads import each
from testbed.emulation.compute.cost import meter
from testbed.errors import RoundAborted
from testbed.messages import signed_content


def recovered_self_masks(state: FlamingoRound, threshold: int) -> dict[int, bytes]:
    """By client online, the seed of its own mask: from the first t members' shares.

    A client that has dealt shares that belong to no secret ends the round, or the sum is implausible.

    Raises:
        RoundAborted: a client has sealed shares that do not open, for too many members.
    """
    shares: dict[int, dict[int, bytes]] = defaultdict(dict)
    for member, answer in state.opened.items():
        for row in answer.shares:
            shares[row.client][state.members[member]] = row.share
    known: dict[tuple[int, ...], LagrangeWeights] = {}
    seeds = {}
    for client in state.online.tolist():
        held = dict(sorted(shares[client].items())[:threshold])
        points = tuple(held)
        if len(points) < threshold:
            state.misbehaved(client, f"report: {len(points)} of {threshold} needed shares of its own mask open")
            raise RoundAborted("wrong-shares", f"client {client}: {len(points)} of {threshold} needed shares open")
        meter("shamir.reconstruct.term", threshold)
        try:
            weights = known.setdefault(points, LagrangeWeights(points))
            seeds[client] = weights.reconstruct(list(held.values()))
        except InvalidShares as error:
            raise RoundAborted("wrong-shares", f"client {client}, or a member of the committee: {error}") from None
    return seeds


def recovered_pair_seeds(state: FlamingoRound, threshold: int) -> dict[Edge, bytes]:
    """By edge between a client online and one offline, the seed of the mask that the two have in common.

    A single member that answers with something else than its partial decryptions is found, by leaving out one after the
    other as long as others have answered; it is recorded, and the others' answers count.

    Raises:
        RoundAborted: a seed cannot be had: its client has encrypted nothing to the committee's key, or several members
            answer with something else.
    """
    members = {point: member for member, point in state.members.items()}
    points = sorted(state.members[member] for member in state.opened)
    while True:
        used = points[:threshold]
        found = _decrypted(state, members, used)
        failed = [at for at, seed in enumerate(found) if seed is None]
        if not failed:
            break
        edge = state.edges[failed[0]]
        wrong = _wrong_point(state, members, used, points[threshold:], failed[0])
        if wrong is None:
            detail = f"client {edge.online}'s seed for client {edge.offline} does not open: its fault, or members'"
            raise RoundAborted("wrong-decryption", detail)
        state.misbehaved(members[wrong], "reconstruct: points that are not its partial decryptions")
        points.remove(wrong)
    return {(edge.online, edge.offline): seed for edge, seed in zip(state.edges, found, strict=True) if seed}


def _wrong_point(
    state: FlamingoRound, members: Mapping[int, int], used: list[int], spare: list[int], at: int
) -> int | None:
    """The one of the points used without which a seed opens; None: it is not one alone, or nobody else has answered."""
    for point in used if spare else ():
        others = [one for one in used if one != point]
        if _seed(state, members, [*others, spare[0]], feldman.lagrange_weights([*others, spare[0]]), at) is not None:
            return point
    return None


def _decrypted(state: FlamingoRound, members: Mapping[int, int], used: list[int]) -> list[bytes | None]:
    """The seeds of all edges, by the answers of the members at these points; None where one does not open."""
    meter("edwards25519.multiply", len(state.edges) * len(used))
    meter("edwards25519.add", len(state.edges) * len(used))
    weights = feldman.lagrange_weights(used)
    return list(each(lambda at: _seed(state, members, used, weights, at), range(len(state.edges))))


def _seed(
    state: FlamingoRound, members: Mapping[int, int], used: list[int], weights: list[int], at: int
) -> bytes | None:
    edge = state.edges[at]
    sealed = state.seeds[edge.online, edge.offline].sealed
    partial = {point: state.opened[members[point]].points[at] for point in used}
    associated = signed_content(state.digest, edge.online, edge.offline)
    try:
        return threshold_elgamal.decrypt_with(edge.point, sealed, associated, partial, weights)
    except OpeningFailed:
        return None
