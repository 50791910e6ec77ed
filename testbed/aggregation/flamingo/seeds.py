"""Recovery of the seeds of masks that are left in a sum of `flamingo`, from the members' answers."""

from collections import defaultdict
from collections.abc import Mapping

from testbed.aggregation.flamingo.messages import decryptions_content
from testbed.aggregation.flamingo.round import Edge, FlamingoRound
from testbed.crypto import InvalidShares, OpeningFailed, equal_logarithms, feldman, threshold_elgamal
from testbed.crypto.shamir import LagrangeWeights
from testbed.crypto.threads import thread_map
from testbed.emulation.compute.cost import meter
from testbed.errors import ProtocolError, RoundAborted
from testbed.messages import signed_content


def recovered_self_masks(state: FlamingoRound, threshold: int) -> dict[int, bytes]:
    """Return, by client online, the seed of its own mask, from the first t members' shares.


    Args:
        state: of the round.
        threshold: t of the committee.

    Raises:
        RoundAborted: the shares that a client has sealed do not open for too many members.
    """
    shares: dict[int, dict[int, bytes]] = defaultdict(dict)
    for member, answer in state.opened.items():
        for row in answer.shares:
            shares[row.client][state.members[member]] = row.share
    weights_by_points: dict[tuple[int, ...], LagrangeWeights] = {}
    seeds = {}
    for client in state.online.tolist():
        share_by_point = dict(sorted(shares[client].items())[:threshold])
        points = tuple(share_by_point)
        if len(points) < threshold:
            # The record names both sides, since a member can say so of any client.
            without = [member for member in state.opened if state.members[member] not in shares[client]]
            listed = ", ".join(map(str, without))
            detail = f"members {listed} report that its shares do not open; it sealed them wrongly, or the members lie"
            state.misbehaved(client, f"report: {detail}")
            raise RoundAborted("wrong-shares", f"client {client}: {len(points)} of {threshold} needed shares open")
        meter("shamir.reconstruct.term", threshold)
        try:
            if points not in weights_by_points:
                weights_by_points[points] = LagrangeWeights(points)
            seeds[client] = weights_by_points[points].reconstruct(list(share_by_point.values()))
        except InvalidShares as error:
            raise RoundAborted("wrong-shares", f"client {client}, or a member of the committee: {error}") from None
    return seeds


def recovered_pair_seeds(state: FlamingoRound, threshold: int) -> dict[Edge, bytes]:
    """Return, by edge between a client online and one offline, the seed of their common mask.

    No honest member is ever recorded as misbehaving, however clients and other members behave.

    Args:
        state: of the round.
        threshold: t of the committee.

    Raises:
        RoundAborted: a seed is not encrypted to the committee's key, or too few members have valid proofs.
    """
    members = {point: member for member, point in state.members.items()}
    points, proven = sorted(state.members[member] for member in state.opened), set[int]()
    while True:
        used = points[:threshold]
        if len(used) < threshold:
            detail = f"{len(used)} of {threshold} needed members have proven their decryptions"
            raise RoundAborted("wrong-decryption", detail)
        seeds = _decrypted(state, members, used)
        failed = sorted({edge.online for edge, seed in zip(state.edges, seeds, strict=True) if seed is None})
        if not failed:  # the encryption is authenticated: a seed that opens needs no proof
            break
        unproven = [point for point in used if point not in proven and not _is_proven(state, members[point])]
        if not unproven:
            # All used decryptions are proven, so the clients have not encrypted to the committee's key.
            for client in failed:
                state.misbehaved(client, "report: a seed that is not encrypted to the committee's key")
            listed = ", ".join(map(str, failed))
            raise RoundAborted(
                "wrong-decryption", f"seeds of clients {listed} are not encrypted to the committee's key"
            )
        for point in unproven:
            state.misbehaved(members[point], "reconstruct: points that are not its partial decryptions")
        proven.update(used)
        # Other members' answers take the place of answers without a valid proof.
        points = [point for point in points if point not in unproven]
    return {(edge.online, edge.offline): seed for edge, seed in zip(state.edges, seeds, strict=True) if seed}


def _is_proven(state: FlamingoRound, member: int) -> bool:
    """Return whether a member has proven that its points are the edges' points times its key share."""
    answer, count, commitments = state.opened[member], len(state.edges), state.stored_service.commitments
    meter("edwards25519.multiply", 2 * count + 3 + len(commitments) - 1)
    meter("edwards25519.add", 2 * count + len(commitments) - 1)
    meter("edwards25519.multiply_base")
    try:
        public = feldman.committed_at(commitments, state.members[member])
        content = decryptions_content(state.digest, member, state.edges)
        equal_logarithms.verify(public, [edge.point for edge in state.edges], answer.points, content, answer.proof)
    except ProtocolError:
        return False
    return True


def _decrypted(state: FlamingoRound, members: Mapping[int, int], used: list[int]) -> list[bytes | None]:
    """Return the seeds of all edges, from the answers of the members at these points; None: a seed does not open."""
    meter("edwards25519.multiply", len(state.edges) * len(used))
    meter("edwards25519.add", len(state.edges) * len(used))
    weights = feldman.lagrange_weights(used)
    return list(thread_map(lambda at: _seed(state, members, used, weights, at), range(len(state.edges))))


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
