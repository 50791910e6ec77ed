"""Noise policies of `secagg`: no noise (`WithoutNoise`), noise that stays, and excess noise that the server removes.

Removal keeps the noise as planned when participants drop out (`privacy.noise.RemovableNoise`). Each participant shares
the secrets of its removable components among its peers, sealed with its other shares (stage share-keys). Once t clients
have signed the survivors, each client reveals, along with its share of a survivor's self-mask seed, its share of that
survivor's secret number D + 1. D is the number of dropouts by the survivors that it has signed itself. The server names
no number, so it cannot have more removed than these dropouts leave over; t clients would not sign a second set of
survivors with another D. A survivor that has left meanwhile is no special case.

In the published protocol survivors send their seeds, and one more stage asks for shares of the seeds of clients that
have left. Here shares serve for both, as for the self-masks: no stage is added, and a wrong share is detected and left
out.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt

from testbed.aggregation.contract import AggregationRound
from testbed.aggregation.kit.compression import RandomK
from testbed.aggregation.kit.message_parts import Many, ShareOf
from testbed.aggregation.kit.ring_elements import AddedNoise, NoisePolicy, NoisyRole, ServerAddedNoise
from testbed.aggregation.quantisation import Quantisation
from testbed.aggregation.secagg.messages import RevealedShares, Unmask, sealed_bytes
from testbed.aggregation.secagg.share_recovery import recover
from testbed.crypto.shamir import SHARE_BYTES
from testbed.errors import Refusal
from testbed.messages import Message
from testbed.network.masked_vectors import Elements
from testbed.network.sums import add_in_threads
from testbed.privacy.noise import Noise, NoiseShare, RemovableNoise, chain, seed_of
from testbed.workload.contract import LocalUpdate

if TYPE_CHECKING:
    from testbed.aggregation.secagg.round import SecAggRound

PROTOCOL_SECRETS = 2  # of the protocol itself, shared before those of the noise: the mask key and the self-mask seed


class SharesAndNoise(RevealedShares, frozen=True):
    """`RevealedShares`, with shares of each survivor's first noise component to remove (empty: none is removed)."""

    noise: Annotated[list[ShareOf], Many]


class UnmaskAndRemove(Unmask, frozen=True):
    """Question for the shares that the survivors require, and for shares of the noise to remove."""

    Answer: ClassVar[type[Message] | None] = SharesAndNoise


class SecAggNoise(NoisePolicy):
    """Noise policy of secure aggregation; by default all noise stays."""

    def secrets(self, participants: int) -> int:
        """Return the number of noise secrets that each of this many participants shares among its peers."""
        return 0

    def secrets_of(self, role: NoisyRole, participants: int, round_number: int) -> list[bytes]:
        """Return these secrets, 32 bytes each."""
        return []

    def shares_to_reveal(
        self, participants: int, survivors: Collection[int], dealt: Mapping[int, bytes]
    ) -> list[ShareOf]:
        """Return the required share of each survivor's noise.

        Args:
            participants: s.
            survivors: the signed survivors, this client among them.
            dealt: by peer, all its shares.

        Raises:
            Refusal: no noise is removed in this experiment.
        """
        raise Refusal("secagg.no-removable-noise", "in this experiment all noise stays")

    def remove_excess(self, state: "SecAggRound", total: npt.NDArray[Any]) -> None:
        """Subtract the survivors' noise beyond the planned noise from `total` (in place, without masks).

        Raises:
            RoundAborted: too few shares.
        """

    def unmask_kind(self, participants: int) -> type[Unmask]:
        """Return the class of the question for the shares."""
        return UnmaskAndRemove if self.secrets(participants) else Unmask

    def sealed_bytes(self, participants: int) -> int:
        """Return the length of the shares that a client seals for a peer."""
        return sealed_bytes(PROTOCOL_SECRETS + self.secrets(participants))


class WithoutNoise(SecAggNoise):
    """Policy that quantises updates and adds no noise.

    Args:
        quantisation: of updates.
        weighted: whether an update counts once per sample of its client; if not, once.
    """

    def __init__(self, quantisation: Quantisation, weighted: bool) -> None:
        self._quantisation = quantisation
        self._weighted = weighted

    def length(self, dimension: int) -> int:
        return dimension + 1

    def encoded(
        self, role: NoisyRole, update: LocalUpdate, participants: int, round_number: int
    ) -> npt.NDArray[Any] | Elements:
        """Return the quantised update; computed when it is needed if masks are symbolic."""
        weight = update.samples if self._weighted else 1
        coins = role.environment.randomness.simulation_key(role.client.number, round_number, "stochastic rounding")
        quantised = self._quantisation.quantised(update.delta, weight, coins)
        return quantised if role.environment.symbolic_masks else np.asarray(quantised)

    def mean(
        self, total: npt.NDArray[Any], updates: int, round_: AggregationRound
    ) -> tuple[npt.NDArray[np.float64], int]:
        return self._quantisation.decode(total, updates)


class SampledCoordinates(WithoutNoise):
    """Policy that quantises the coordinates of `testbed.aggregation.kit.compression.RandomK` only.

    Args:
        quantisation, weighted: as in `WithoutNoise`.
        sampling: choice of the coordinates.
    """

    def __init__(self, quantisation: Quantisation, weighted: bool, sampling: RandomK) -> None:
        super().__init__(quantisation, weighted)
        self._sampling = sampling

    def length(self, dimension: int) -> int:
        return super().length(self._sampling.length(dimension))

    def encoded(
        self, role: NoisyRole, update: LocalUpdate, participants: int, round_number: int
    ) -> npt.NDArray[Any] | Elements:
        sampled = replace(update, delta=self._sampling.sample(update.delta, role, round_number))
        return super().encoded(role, sampled, participants, round_number)

    def mean(
        self, total: npt.NDArray[Any], updates: int, round_: AggregationRound
    ) -> tuple[npt.NDArray[np.float64], int]:
        mean, weight = super().mean(total, updates, round_)
        return self._sampling.mean(mean, round_), weight


class KeptNoise(AddedNoise, SecAggNoise):
    """Policy with noise of the participants, all of which stays."""


class NoiseAfterwards(ServerAddedNoise, SecAggNoise):
    """Policy with noise that the server adds to the sum."""


class RemovedNoise(KeptNoise):
    """Policy in which each participant adds excess noise, of which the server removes the part not needed (XNoise).

    An object serves one round of one client, or the server.
    """

    def __init__(self, noise: Noise, bits: int) -> None:
        super().__init__(noise, bits)
        self._first_secret: bytes | None = None

    def _plan(self, participants: int) -> RemovableNoise:
        plan = self.noise.removable(participants)
        assert plan is not None
        return plan

    def remaining_share(self, survivors: int, participants: int) -> float:
        return self._plan(participants).remaining_share(survivors)

    def vectors(self, role: NoisyRole, participants: int, dimension: int, round_number: int) -> list[NoiseShare]:
        """Return the participant's share and all removable components."""
        plan = self._plan(participants)
        return super().vectors(role, participants, dimension, round_number) + [
            self.noise.component(plan, dimension, number, seed_of(secret))
            for number, secret in enumerate(self.secrets_of(role, participants, round_number), 1)
        ]

    def prepare(self, participants: int, dimension: int) -> None:
        """Compute the tables of all components."""
        super().prepare(participants, dimension)
        plan = self._plan(participants)
        for number in range(1, plan.tolerated + 1):
            self.noise.component(plan, dimension, number, bytes(32)).prepare()

    def secrets(self, participants: int) -> int:
        """Return the number of removable components."""
        return self._plan(participants).tolerated

    def secrets_of(self, role: NoisyRole, participants: int, round_number: int) -> list[bytes]:
        """Return the secrets of the removable components, 32 bytes each."""
        # Drawn once per round: without a seed, a second draw would give another secret, and the server would remove
        # noise that was never added.
        if self._first_secret is None:
            randomness = role.environment.randomness
            self._first_secret = randomness.secret(role.client.number, round_number, "noise removable")
        return chain(self._first_secret, self._plan(participants).tolerated)

    def shares_to_reveal(
        self, participants: int, survivors: Collection[int], dealt: Mapping[int, bytes]
    ) -> list[ShareOf]:
        first = self._plan(participants).first_removed(len(survivors))
        if first is None:
            return []
        # One secret suffices: those of the later components follow from it (`privacy.noise.chain`).
        begin = (PROTOCOL_SECRETS + first - 1) * SHARE_BYTES
        return [
            ShareOf(peer, shares[begin : begin + SHARE_BYTES]) for peer, shares in dealt.items() if peer in survivors
        ]

    def remove_excess(self, state: "SecAggRound", total: npt.NDArray[Any]) -> None:
        round_, dimension = state.start, state.start.dimension
        plan = self._plan(len(round_.participants))
        first = plan.first_removed(len(state.survivors))
        if first is None or dimension is None:
            return
        shares = {c: answer.noise for c, answer in state.revealed.items() if isinstance(answer, SharesAndNoise)}
        recovered = recover(state.graph.threshold, np.sort(state.survivors).tolist(), shares)
        for client, holder in recovered.wrong:
            detail = f"unmask: wrong share of the noise of client {client}, dealt by it or changed by client {holder}"
            state.misbehaved(holder, detail)
        for client, why in recovered.undecided.items():  # more noise than planned protects no less
            detail = f"unmask: the shares of its noise contradict each other ({why}): it stays in the sum"
            state.misbehaved(client, detail)
        excess = [
            self.noise.component(plan, dimension, number, seed_of(later))
            for secret in recovered.secrets.values()
            for number, later in enumerate(chain(secret, plan.tolerated - first + 1), first)
        ]

        def subtract(part: npt.NDArray[Any], shares: Sequence[NoiseShare]) -> None:
            for share in shares:
                share.add_to(part, -1)

        add_in_threads(total, excess, subtract, self.bits, at_least=2)
