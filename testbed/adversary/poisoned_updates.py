"""Dishonest clients that submit other updates than they have trained.

They change the input of the aggregation protocol, before encoding, and so act under every aggregation protocol.

Colluders do not know honest updates: they estimate mean and deviation from the updates that they train themselves on
the model that they received (Baruch et al., section 3.1). Communication between colluders bypasses the server, takes no
time, and is not recorded.
"""

from abc import abstractmethod
from collections.abc import Set
from dataclasses import replace
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from testbed.adversary.misbehaviour import ClientMisbehaviour, MisbehaviourOptions
from testbed.aggregation.catalogue import PROTOCOLS
from testbed.aggregation.dp_sgd_random_participation import RandomParticipationParameters
from testbed.arrays import Floats
from testbed.crypto.memo import cached_latest
from testbed.errors import ExperimentError
from testbed.parties.client import Role
from testbed.training import Train, Trainer
from testbed.workload.contract import LocalUpdate, Workload
from testbed.workload.section import WorkloadSection


class ScaleOptions(MisbehaviourOptions):
    """Options of `scale-update`."""

    factor: float | None = Field(
        None,
        gt=0,
        description="Factor of the trained update (gamma); none: the largest number of participants in a round, so "
        "that in a mean of equal weights the update outweighs all others",
    )


class ScaleUpdate(ClientMisbehaviour, Trainer):
    """Submits a multiple of its trained update, to outweigh the others.

    Bagdasaryan, Veit, Hua, Estrin and Shmatikov, How To Backdoor Federated Learning, AISTATS 2020, arXiv 1807.00459,
    section 4: model replacement, gamma.
    """

    name: ClassVar[str] = "scale-update"
    applies_to: ClassVar[tuple[str, ...]] = ("train",)
    extends: ClassVar[type[Role]] = Trainer
    Options: ClassVar[type[MisbehaviourOptions]] = ScaleOptions

    def learn(self, workload: Workload, message: Train) -> LocalUpdate:
        """Train honestly, and scale the update."""
        honest = super().learn(workload, message)
        if not self.attacks(message.round):
            return honest
        configured = self.context.options_of(ScaleUpdate).factor
        factor = float(self.environment.maximum_participants) if configured is None else configured
        self.record_attack(ScaleUpdate, f"{factor:g} times what it has learned")
        return _times(honest, factor)


class FlipOptions(MisbehaviourOptions):
    """Options of `flip-sign`."""

    factor: float = Field(1.0, gt=0, description="Factor of the opposite of the trained update")


class FlipSign(ClientMisbehaviour, Trainer):
    """Submits the opposite of its trained update.

    Li, Xu, Chen, Giannakis and Ling, RSA, AAAI 2019, arXiv 1811.03761, section 5: sign-flipping.
    """

    name: ClassVar[str] = "flip-sign"
    applies_to: ClassVar[tuple[str, ...]] = ("train",)
    extends: ClassVar[type[Role]] = Trainer
    Options: ClassVar[type[MisbehaviourOptions]] = FlipOptions

    def learn(self, workload: Workload, message: Train) -> LocalUpdate:
        """Train honestly, and flip the sign of the update."""
        honest = super().learn(workload, message)
        if not self.attacks(message.round):
            return honest
        factor = self.context.options_of(FlipSign).factor
        self.record_attack(FlipSign, f"{factor:g} times the opposite of what it has learned")
        return _times(honest, -factor)


class CollusionOptions(MisbehaviourOptions):
    """Options of colluding clients."""

    estimates: int = Field(
        20,
        ge=2,
        description="Most colluders that contribute to mean and deviation, the first in order",
    )

    def check(self, population: int, dishonest: Set[int]) -> None:
        """Check that there are at least two colluders, which a deviation needs."""
        if len(dishonest) == 1:
            raise ValueError("estimates: mean and deviation need at least two colluders; list more in dishonest")


class Colluder(ClientMisbehaviour, Trainer):
    """Submits the common update of all colluders, computed from mean and deviation of their trained updates."""

    # If clients sum clipped gradients of drawn samples, a colluder cannot compute another colluder's update.
    applies_to: ClassVar[tuple[str, ...]] = tuple(
        str(kind.model_fields["protocol"].default) for kind in PROTOCOLS if kind is not RandomParticipationParameters
    )
    extends: ClassVar[type[Role]] = Trainer

    @classmethod
    def check_learning(cls, section: WorkloadSection) -> None:
        """Check that updates depend on the model alone: state of other clients is not available."""
        for key in ("drift_correction", "local_layers"):
            if getattr(section, key) is not None:
                raise ExperimentError(
                    f"adversary.clients: {cls.name} takes updates to follow from the model alone; leave out "
                    f"workload.{key}"
                )

    @abstractmethod
    def crafted(self, updates: Floats) -> Floats:
        """Return the common update, `(d,)`.

        Args:
            updates: `(c, d)` trained updates of at least two colluders.
        """

    def agreed(self, kind: "type[Colluder]", honest: LocalUpdate, workload: Workload, message: Train) -> LocalUpdate:
        """Return the common update; the honest update if fewer than two colluders have samples.

        Args:
            kind: the misbehaviour.
            honest: the client's own update.
            workload: the workload.
            message: the question.
        """
        if not self.attacks(message.round):
            return honest
        key = (message.round, message.model.digest())
        # Once for all colluders of this process: each would train all of them again.
        common = cached_latest(f"colluders: {kind.name}", key, lambda: self._estimated(kind, workload, message))
        if common is None:
            return honest
        delta, count = common
        self.record_attack(kind, f"what {count} colluders have agreed on")
        return replace(honest, delta=delta)

    def _estimated(
        self, kind: "type[Colluder]", workload: Workload, message: Train
    ) -> tuple[npt.NDArray[np.float32], int] | None:
        most = self.context.options_of(kind).estimates
        # Clients without samples have zero updates, which would shrink the estimated deviation.
        sample_holders = [client for client in sorted(self.dishonest) if workload.sample_counts[client]][:most]
        if len(sample_holders) < 2:
            return None
        trained_updates = [
            workload.train(client, message.model.values, message.round).delta for client in sample_holders
        ]
        return kind.crafted(self, np.array(trained_updates, np.float64)).astype(np.float32), len(sample_holders)


class LittleOptions(CollusionOptions):
    """Options of `little-is-enough`."""

    z: float | None = Field(
        None,
        ge=0,
        description="Standard deviations from the mean; none: the largest value that hides behind a majority (z_max), "
        "for the expected number of dishonest participants",
    )


class LittleIsEnough(Colluder):
    """Submits the mean minus z standard deviations, in each coordinate: within the variation of honest updates.

    Baruch, Baruch and Goldberg, A Little Is Enough, NeurIPS 2019, arXiv 1902.06156.
    """

    name: ClassVar[str] = "little-is-enough"
    Options: ClassVar[type[MisbehaviourOptions]] = LittleOptions

    def learn(self, workload: Workload, message: Train) -> LocalUpdate:
        """Train honestly, and submit the common update."""
        return self.agreed(LittleIsEnough, super().learn(workload, message), workload, message)

    def crafted(self, updates: Floats) -> Floats:
        """Return the update of Algorithm 3 of the paper."""
        z = self.context.options_of(LittleIsEnough).z
        if z is None:
            n = self.environment.maximum_participants
            z = z_max(n, round(n * len(self.dishonest) / self.environment.population))
        crafted: Floats = updates.mean(axis=0) - z * updates.std(axis=0)
        return crafted


class MinMax(Colluder):
    """Submits the mean minus gamma standard deviations, with the largest undetected gamma.

    The result is no further from any update than two of the updates are from each other. Shejwalkar and Houmansadr,
    Manipulating the Byzantine, NDSS 2021, section IV, AGR-agnostic.
    """

    name: ClassVar[str] = "min-max"
    Options: ClassVar[type[MisbehaviourOptions]] = CollusionOptions

    def learn(self, workload: Workload, message: Train) -> LocalUpdate:
        """Train honestly, and submit the common update."""
        return self.agreed(MinMax, super().learn(workload, message), workload, message)

    def crafted(self, updates: Floats) -> Floats:
        """Return the update of equation 6: perturbation by the inverse standard deviation, gamma in closed form."""
        mean: Floats = updates.mean(axis=0)
        deviation = updates.std(axis=0)
        away = mean - updates
        products = updates @ updates.T
        # |a - b|^2 = |a|^2 + |b|^2 - 2ab: all distances from one matrix product.
        squares = np.diag(products)
        most = float((squares[:, None] + squares - 2 * products).max())
        length, along = float(deviation @ deviation), away @ deviation
        # Equal updates have no deviation, and the division below has no result.
        if not length:
            return mean
        # |away_i - gamma deviation|^2 <= most, a quadratic in gamma for each i; its larger root is the most allowed.
        room = np.square(along) + length * np.maximum(most - np.square(away).sum(axis=1), 0)
        gamma = float(((along + np.sqrt(room)) / length).min())
        crafted: Floats = mean - gamma * deviation
        return crafted


def z_max(participants: int, dishonest: int) -> float:
    """Return the largest z that leaves the dishonest updates and their honest supporters a majority.

    Phi(z) < (n - m - s)/(n - m), s = floor(n/2 + 1) - m; 0 if there is no such z.

    Args:
        participants: n.
        dishonest: m.

    Source:
        Baruch et al., section 3.1.
    """
    honest, supporters = participants - dishonest, participants // 2 + 1 - dishonest
    if supporters <= 0 or honest <= 0:
        return 4.0  # the dishonest participants are a majority; beyond 4 the normal distribution is meaningless
    # The quantile of the normal distribution is infinite at 0 and 1.
    share = (honest - supporters) / honest
    return max(0.0, NormalDist().inv_cdf(share)) if 0 < share < 1 else 0.0


def _times(update: LocalUpdate, factor: float) -> LocalUpdate:
    """Return the update times a factor, rounded once and finite: clients refuse to submit other values."""
    # In float64, then clipped: a product beyond float32 would become infinite.
    most = float(np.finfo(np.float32).max)
    delta: Any = np.clip(np.asarray(update.delta, np.float64) * factor, -most, most)
    return replace(update, delta=delta.astype(np.float32))
