"""A malicious SecAgg server that reconstructs one victim's update by contradictory claims about dropouts.

Some honest clients are told that the victim survived, and give shares of its self-mask seed; the others are told that
it dropped out, and give shares of its mask key. With x >= 2t - s accomplices, which sign every set of survivors and
give both shares, there are t shares of each secret: the victim's input without its masks is its quantised update, bit
for bit. All checks pass, and the round is completed. Bonawitz et al., CCS 2017, Theorem 6.5, shows that fewer
accomplices are not enough if the survivors are signed; Lotto (arXiv 2401.02880), Corollary 1, bounds how often there
are that many.
"""

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from testbed.adversary.misbehaviour import AggregationMisbehaviour, MisbehaviourOptions
from testbed.adversary.secagg.contradictions import InconsistentView, two_views
from testbed.adversary.secagg.dishonest_clients import HandedOver, HandOver, SecAggAccomplice
from testbed.adversary.victims import VictimOptions
from testbed.aggregation.kit.message_parts import ShareOf, SignatureOf
from testbed.aggregation.secagg.messages import CheckSurvivors, RevealedShares, Unmask, UnmaskSurvivors
from testbed.aggregation.secagg.round import SecAggRound
from testbed.aggregation.secagg.server import SecAgg
from testbed.aggregation.secagg.share_recovery import recover
from testbed.crypto.key_agreement import PrivateKey
from testbed.emulation.compute.cost import meter
from testbed.errors import RoundAborted
from testbed.network.contract import ids
from testbed.network.sums import add_masks_in_threads


@dataclass(frozen=True)
class ReconstructionAttempt:
    """Outcome of an attack in one round.

    Attributes:
        members: the honest clients of the targeted sum; one victim, or more.
        vector: `(d+1,)` ring elements, the sum of their quantised updates (with their shares of noise, if they add
            noise); None: not reconstructed.
        detail: the outcome in one line.
    """

    members: frozenset[int]
    vector: npt.NDArray[Any] | None
    detail: str

    @property
    def succeeded(self) -> bool:
        """Whether the sum was reconstructed."""
        return self.vector is not None


class Contradicting(AggregationMisbehaviour, SecAgg):
    """Base class of attacks by contradictory claims; they differ in the claims and in the target.

    Attributes:
        misbehaviour: the class named in an experiment.
        attempt: outcome of the latest round, if it was attacked.
    """

    misbehaviour: ClassVar[type["Contradicting"]]
    Options: ClassVar[type[MisbehaviourOptions]] = VictimOptions
    applies_to: ClassVar[tuple[str, ...]] = ("secagg",)
    accomplice_roles = (SecAggAccomplice,)
    attempt: ReconstructionAttempt | None = None

    def __init_subclass__(cls) -> None:
        if "name" in vars(cls):  # a misbehaviour, not a class that a misbehaviour was mixed into
            cls.misbehaviour = cls

    # -- survivors ------------------------------------------------------------------------------------------------

    async def advertise_keys(self, state: SecAggRound) -> None:
        """Forget the last attempt and begin the round honestly."""
        self.attempt = None
        await super().advertise_keys(state)

    def accomplices(self, state: SecAggRound) -> frozenset[int]:
        """Return the accomplices among the survivors."""
        return self.dishonest & frozenset(state.arrived.tolist())

    def honest(self, state: SecAggRound) -> list[int]:
        """Return the honest survivors."""
        return [client for client in state.arrived.tolist() if client not in self.dishonest]

    def ranked(self, state: SecAggRound, honest: Sequence[int]) -> list[int]:
        """Return `honest` in the order of interest: the victim named in the experiment, then at random.

        Args:
            state: of the round.
            honest: honest clients.

        Returns:
            Empty if the named victim is not among them.
        """
        order, randomness = list(honest), state.start.randomness
        if randomness is not None:
            # A draw for each round: otherwise the clients with the lowest numbers would always be the victims.
            order = randomness.generator("server", state.start.number, "victim").permutation(order).tolist()
        named = self.context.options_of(self.misbehaviour).victim
        if named is None:
            return order
        return sorted(order, key=lambda client: client != named) if named in honest else []

    # -- contradictory claims -------------------------------------------------------------------------------------

    def views(self, state: SecAggRound) -> list[InconsistentView]:
        """Return the claims of the round and set the target."""
        raise NotImplementedError

    async def conclude(self, state: SecAggRound, keys: Mapping[int, bytes]) -> ReconstructionAttempt:
        """Reconstruct as much as the revealed shares allow.

        Args:
            state: of the round, with the revealed shares.
            keys: the accomplices' mask keys.
        """
        raise NotImplementedError

    async def check_consistency(self, state: SecAggRound) -> None:
        """Do nothing in attacked rounds: each view is signed and unmasked at once."""
        if not self.attacking:
            await super().check_consistency(state)

    async def collect_shares(self, state: SecAggRound) -> None:
        """Make the claims, collect the accomplices' shares, and reconstruct as much as possible."""
        if not self.attacking:
            await super().collect_shares(state)
            return
        round_, t, accomplices = state.start, state.graph.threshold, self.accomplices(state)
        state.revealed = {}
        for view in self.views(state):
            state.revealed |= await self._tell(state, view)
        handed_over: dict[int, HandedOver] = {}
        if accomplices:
            handed_over = (await round_.network.ask(ids(sorted(accomplices)), HandOver(round_.number))).valid()
        state.revealed |= {
            client: RevealedShares(answer.mask_keys, answer.self_masks) for client, answer in handed_over.items()
        }
        keys = {client: answer.mask_key for client, answer in handed_over.items()}
        self.attempt = await self.conclude(state, keys)
        self.record_attack(self.misbehaviour, self.attempt.detail)
        if len(state.revealed) < t:
            raise RoundAborted("below-threshold", f"{len(state.revealed)} of {t} needed revealed their shares")

    async def _tell(self, state: SecAggRound, view: InconsistentView) -> dict[int, RevealedShares]:
        """Return the shares that clients reveal for a view, signed by its recipients and by the accomplices."""
        round_, survivors = state.start, list(view.survivors)
        if self.parameters.consistency == "none":
            replies = await round_.network.ask(ids(view.recipients), UnmaskSurvivors(round_.number, survivors))
            return replies.valid()
        # Accomplices sign every view, so only t - x honest signatures are needed for each.
        signers = ids(sorted({*view.recipients, *(self.accomplices(state) & set(survivors))}))
        signed = (await round_.network.ask(signers, CheckSurvivors(round_.number, survivors))).valid()
        rows = [SignatureOf(client, answer.signature) for client, answer in signed.items()]
        listening = [client for client in view.recipients if client in signed]
        if not listening:
            return {}
        return (await round_.network.ask(ids(listening), Unmask(round_.number, rows))).valid()

    # -- reconstruction -------------------------------------------------------------------------------------------

    async def reconstructed(
        self,
        state: SecAggRound,
        label: str,
        members: Set[int],
        peers: Mapping[int, Set[int]],
        gone: Collection[int],
        keys: Mapping[int, bytes],
    ) -> ReconstructionAttempt:
        """Remove the masks from the sum over `members`.

        Args:
            state: of the round, with the revealed shares.
            label: name of the sum, for the record.
            members: honest clients in the sum.
            peers: for each member, the peers that it shares masks with.
            gone: clients with mask keys to reconstruct from shares.
            keys: mask keys that need no shares.
        """
        t = state.graph.threshold
        mask_rows = {client: shares.mask_keys for client, shares in state.revealed.items()}
        seed_rows = {client: shares.self_masks for client, shares in state.revealed.items()}
        counted = (
            f"{label}: {_fewest(mask_rows, gone)} of {t} needed shares of the mask key, "
            f"{_fewest(seed_rows, members)} of {t} of the self-mask seed"
        )
        try:
            self_masks, mask_keys = recover(t, sorted(members), seed_rows), recover(t, sorted(gone), mask_rows)
            for client, why in {**self_masks.undecided, **mask_keys.undecided}.items():
                raise RoundAborted("wrong-shares", f"client {client}: {why}")
            seeds, all_keys = self_masks.secrets, {**keys, **mask_keys.secrets}
            pairs = {client: PrivateKey.from_seed(secret) for client, secret in all_keys.items()}
            for client, pair in pairs.items():
                # Shares of a malicious dealer reconstruct some key, too; only the advertised one removes masks.
                if pair.public != state.adverts[client].mask_key:
                    raise RoundAborted("wrong-shares", f"the shares of client {client} give another key than its own")
            vector = await state.answers.total(ids(sorted(members)))
            self._remove_masks_of(state, vector, members, peers, pairs, seeds)
            _, weight = self.noise.mean(vector, len(members), state.start)
            # One client's levels are its weight times integers; otherwise a mask is left in the vector.
            if len(members) == 1 and np.any(vector[:-1] % weight):
                raise RoundAborted("implausible-update", "its levels are no multiples of its weight")
        except RoundAborted as failed:
            return ReconstructionAttempt(frozenset(members), None, f"{counted}; failed: {failed.detail}")
        digest = hashlib.sha256(vector.astype(f"<u{vector.itemsize}").tobytes()).hexdigest()
        return ReconstructionAttempt(
            frozenset(members), vector, f"{counted}; reconstructed, weight {weight}, sha256 {digest}"
        )

    def _remove_masks_of(
        self,
        state: SecAggRound,
        vector: npt.NDArray[Any],
        members: Set[int],
        peers: Mapping[int, Set[int]],
        pairs: Mapping[int, PrivateKey],
        self_masks: Mapping[int, bytes],
    ) -> None:
        """Remove masks in place; `pairs` has one of the two mask keys of each pairwise mask that has not cancelled."""
        seeds, signs = [], []
        for client in sorted(members):
            seeds.append(self_masks[client])
            signs.append(-1)
            # Masks between two members cancel in the sum.
            for peer in sorted(peers[client] - members):
                own, other = (client, peer) if client in pairs else (peer, client)
                seeds.append(pairs[own].agree(state.adverts[other].mask_key, self.parameters.mask_purpose))
                # The client with the smaller number added the mask, the other one subtracted it.
                signs.append(-1 if peer > client else 1)
        meter("x25519.agree", len(seeds) - len(members))
        meter(self.parameters.mask_operation, len(vector) * len(seeds))
        add_masks_in_threads(vector, seeds, signs, self.parameters.bits, self.parameters.prg)


def _fewest(rows: Mapping[int, Sequence[ShareOf]], clients: Collection[int]) -> int:
    """Return the number of shares of the secret with the fewest shares."""
    counts = dict.fromkeys(clients, 0)
    for revealed in rows.values():
        for row in revealed:
            if row.client in counts:
                counts[row.client] += 1
    return min(counts.values(), default=0)


class ContradictDropouts(Contradicting):
    """Makes contradictory claims about one victim; completes the round as if there had been one claim."""

    added_stages = (HandOver.stage,)
    name: ClassVar[str] = "contradict-dropouts"
    update_recovered: ClassVar[re.Pattern[str] | None] = re.compile(r"^victim \d+\b.*\b(?:recovered|reconstructed)\b")
    _victim: int | None

    def views(self, state: SecAggRound) -> list[InconsistentView]:
        """Return a view in which the victim survived and a view in which it dropped out."""
        honest, survivors = self.honest(state), state.arrived.tolist()
        ranked = self.ranked(state, honest)
        self._victim = ranked[0] if ranked else None
        if self._victim is None:
            return [InconsistentView(tuple(survivors), tuple(honest))] if honest else []
        return two_views(self._victim, honest, len(self.accomplices(state)), survivors, state.graph.threshold)

    async def conclude(self, state: SecAggRound, keys: Mapping[int, bytes]) -> ReconstructionAttempt:
        """Reconstruct the victim's update if there are t shares of both its secrets."""
        if self._victim is None:
            return ReconstructionAttempt(frozenset(), None, "failed: the victim has not sent its input")
        members, peers = {self._victim}, {self._victim: frozenset(state.sealed) - {self._victim}}
        return await self.reconstructed(state, f"victim {self._victim}", members, peers, members, {})
