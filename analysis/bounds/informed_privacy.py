"""Guarantees of a selection for the privacy of a planned training, as epsilon.

Distributed noise protects a client the better, the fewer rounds it is in, and the more of the other participants are
honest. Selection decides both. Against a server that follows the protocol, they are left to chance. A malicious server
decides itself, as far as clients do not check: under random selection it takes the victim in every round, together with
all colluding clients. Lotto leaves both to chance again (`analysis.bounds.lotto_rounds`).

The noise that is left in a round depends on the number of its participants: see `analysis.bounds.residual_noise`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from math import ceil, inf
from typing import Any, Literal

import numpy as np

from analysis.bounds.lotto import selection_probability
from analysis.bounds.lotto_rounds import (
    PrivacyCost,
    at_least_one,
    least_epsilon,
    repeated_by_any,
    repeated_by_participants,
)
from analysis.bounds.residual_noise import ResidualNoise
from analysis.bounds.tails import hypergeometric_survival, survival, survivals
from analysis.bounds.verifiable_batch_partition import BatchSetting
from analysis.bounds.verifiable_batch_partition import bound as batches_exceed
from testbed.aggregation.dp_sgd_random_participation import RandomParticipationParameters
from testbed.batches import Batches
from testbed.engine.plan import RunPlan
from testbed.privacy.gaussian import SubsampledGaussianAccountant
from testbed.privacy.matrix.accounting import CorrelatedAccountant
from testbed.privacy.noise_plan import Accountant

Server = Literal["honest but curious", "trusted", "malicious"]
MAX_POPULATION = 10**9  # n_max of Corollary 3: most clients that could exist


@dataclass(frozen=True)
class Guarantee:
    """One epsilon that holds for every honest client.

    Attributes:
        server: the adversary; a malicious server colludes with the dishonest clients. Trusted: the server sees sums
            before it adds noise, and the guarantee holds against observers of its models.
        cost: epsilon with all noise of the honest participants; with k and r.
        fewest: the same when only the least number of participants of a sum survive: by bad luck, or because a
            malicious server claims that the others have dropped out.
        because: number of a client's rounds, and the other participants in them, in one line.
    """

    server: Server
    cost: PrivacyCost
    fewest: PrivacyCost
    because: str


@dataclass(frozen=True)
class _TrainingRun:
    """The input of the guarantees."""

    plan: RunPlan
    accountant: Accountant
    delta: float

    @cached_property
    def left(self) -> ResidualNoise:
        """Least noise that hides a client."""
        return ResidualNoise.of(self.plan)

    @property
    def population(self) -> int:
        return self.plan.experiment.population

    @property
    def participants(self) -> int:
        return self.plan.experiment.selection.participants

    @property
    def rounds(self) -> int:
        return self.plan.experiment.rounds

    @property
    def dishonest(self) -> int:
        return len(self.plan.dishonest)

    def guarantee(
        self, server: Server, because: str, dishonest: Sequence[float], repeated: Callable[[int], float]
    ) -> Guarantee:
        """Return the guarantee for the chances p_k and q_r of `least_epsilon`."""
        all_survive, fewest = (
            least_epsilon(self.delta, dishonest, repeated, self.rounds, self._cost(server == "malicious", few))
            for few in (False, True)
        )
        shared = self.plan.aggregation.shares_noise
        described = self.left.described(server == "malicious") if shared else ""
        return Guarantee(server, all_survive, fewest, because + described)

    def by_chance(self, p: Fraction) -> Callable[[int], float]:
        """Return q_r of a client that is in each round with probability `p`, independently of the other rounds."""
        return lambda r: survival(r, self.rounds, p)

    def at_most(self, most: int) -> Callable[[int], float]:
        """Return q_r of a client that is in at most `most` rounds."""
        return lambda r: float(r < most)

    def chances(self, up_to: Callable[[int], list[float]]) -> list[float]:
        """Return p_k for k = 0, 1, ...: from `up_to` for numbers that aggregation tolerates, and 0 for more."""
        # Beyond the tolerated number there may be any number: the victim's input is then seen by itself, with the noise
        # of one share. Lotto's corollaries stop before, and have no epsilon where p_k stays above delta.
        last = min(self.dishonest, self.left.withstood)
        return [*(up_to(last) if last >= 0 else []), *([0.0] if self.dishonest > last else [])] or [0.0]

    def _cost(self, malicious: bool, few: bool) -> Callable[[int, int, float], float]:
        """Return epsilon of (k, r, delta) with the noise left in a sum of all participants, or of the fewest."""
        noise_for = self.left.from_malicious if malicious else self.left.from_curious
        # The noise depends on k alone, while the search asks for every pair (k, r).
        noise = lru_cache(maxsize=None)(lambda k: noise_for(k, few) if self.plan.aggregation.shares_noise else 1.0)

        def cost(k: int, r: int, delta: float) -> float:
            return self.accountant.epsilon({noise(k): r}, delta) if r else 0.0

        return cost


def guarantees(plan: RunPlan, accountant: Accountant, delta: float) -> list[Guarantee]:
    """Return the guarantees of an experiment's selection against an honest-but-curious and a malicious server.

    Args:
        plan: of the experiment; its dishonest clients collude with the malicious server.
        accountant: of its aggregation.
        delta: in (0, 1).
    """
    training = _TrainingRun(plan, accountant, delta)
    if isinstance(accountant, SubsampledGaussianAccountant):
        return _of_dp_sgd(training, accountant)
    if isinstance(accountant, CorrelatedAccountant):
        return _of_correlated_noise(training, accountant)
    return [_honest(training), _malicious(training)]


def _honest(training: _TrainingRun) -> Guarantee:
    """Return the guarantee against a server that selects as it should, so that participation is up to chance."""
    repeated, because = _participation(training)
    skipping, how_many = _skipping(training)
    return training.guarantee("honest but curious", because + how_many, skipping, repeated)


def _skipping(training: _TrainingRun) -> tuple[list[float], str]:
    """Return p_k of the participants beside the victim that add no noise, and a description of their number."""
    # If participants are selected uniformly, the others are s - 1 of n - 1, and k of them in one round hypergeometric.
    # Otherwise all clients that skip their noise count as participants in every round of the victim.
    adversary = training.plan.adversary
    skipping = frozenset() if adversary is None else adversary.skips_noise
    if not skipping or not training.plan.aggregation.shares_noise:
        return [0.0], ""
    others = training.plan.maximum_participants - 1
    most = min(len(skipping), others)
    if not _uniform(training):
        return [1.0] * most + [0.0], f"; up to {most} other participants add no noise in any round"
    tails = (hypergeometric_survival(k, training.population - 1, len(skipping), others) for k in range(most))
    return [
        *(at_least_one(training.rounds, tail) for tail in tails),
        0.0,
    ], "; up to k participants, by chance, add no noise"


def _uniform(training: _TrainingRun) -> bool:
    """Return whether the participants of a round are s of all clients, each set as likely as any other."""
    parameters: Any = training.plan.experiment.selection
    is_uniform = (parameters.protocol == "random" and parameters.recorded is None) or (
        parameters.protocol.startswith("lotto-") and parameters.refine is None
    )
    return is_uniform and training.plan.experiment.availability.model == "always"


def _participation(training: _TrainingRun) -> tuple[Callable[[int], float], str]:
    """Return q_r of a client that an honest server may select, and the reason."""
    selection, n, s, rounds = training.plan.selection, training.population, training.participants, training.rounds
    parameters: Any = training.plan.experiment.selection
    always = training.plan.experiment.availability.model == "always"
    protocol, by_chance, at_most = parameters.protocol, training.by_chance, training.at_most
    if protocol == "bernoulli":
        rate = s / n if selection.client_rate is None else selection.client_rate
        return by_chance(Fraction(rate)), f"each client by its own coin, probability {rate:.4g}"
    if _uniform(training):
        return by_chance(Fraction(s, n)), f"{s} of {n} clients at random, all available"
    whole = protocol == "verifiable-batch-partition" or (protocol == "batch-partition" and parameters.mode == "uniform")
    if whole and always:
        assert selection.batches is not None
        batches_of_round, batches = s // parameters.privacy, len(selection.batches)
        return by_chance(
            Fraction(batches_of_round, batches)
        ), f"{batches_of_round} of {batches} batches at random, all available"
    if protocol.startswith("lotto-") or protocol == "verifiable-batch-partition":
        p = _selection_probability(training)
        return by_chance(p), f"a candidate with probability {float(p):.4g}, for any availability"
    if (not always and protocol != "random") or protocol == "oort" or ":" in protocol:
        return at_most(rounds), "in every round, because the other clients may be unavailable or less useful"
    if protocol == "random" and parameters.recorded is None:
        return at_most(rounds), "in every round, because the other clients may be unavailable"
    if protocol in ("weighted-random", "partition") and n % s == 0:
        most = ceil(rounds * s / n)
        return at_most(most), f"clients with the fewest rounds go first, all available: {most} of {rounds} rounds"
    return at_most(rounds), "in every round, because the dependence between rounds is unknown"


def _malicious(training: _TrainingRun) -> Guarantee:
    """Return the guarantee against a server that deviates where clients do not notice, with the dishonest clients."""
    parameters: Any = training.plan.experiment.selection
    s, rounds, c = training.participants, training.rounds, training.dishonest
    protocol = parameters.protocol
    if protocol.startswith("lotto-"):
        p = _selection_probability(training)
        dishonest = training.chances(lambda last: [at_least_one(rounds, tail) for tail in survivals(last, c, p)])
        if protocol == "lotto-server-centric":
            # The server evaluates this PRF itself, and may search for the client with the most rounds beforehand.
            most = max(MAX_POPULATION, training.population)
            because = f"Corollary 3 of Lotto, a candidate with probability at most {float(p):.4g}"
            return training.guarantee("malicious", because, dishonest, lambda r: repeated_by_any(most, r, rounds, p))
        because = f"Corollary 2 of Lotto, a candidate with probability at most {float(p):.4g}"
        return training.guarantee("malicious", because, dishonest, lambda r: repeated_by_participants(s, r, rounds, p))
    if protocol == "verifiable-batch-partition":
        return _malicious_with_verified_batches(training, parameters)
    batches = training.plan.selection.batches
    if batches is not None and training.plan.experiment.aggregation.atomic_batches(batches) is not None:
        k, honest = worst_coalition(batches, training.plan.dishonest, training.plan.maximum_participants)
        because = (
            f"the server takes the victim's batch in every round; in the sum it has {honest} honest clients or more"
        )
    else:
        k = min(c, training.plan.maximum_participants - 1)
        if training.plan.selection.clients_decide and training.plan.selection.client_rate is not None:
            by_own_coin = training.by_chance(Fraction(training.plan.selection.client_rate))
            because = f"the victim by its own coin, and {k} dishonest clients in every round"
            # p_j is 1 below k: the server brings all k accomplices into every round, and has no more.
            return training.guarantee("malicious", because, [1.0] * k + [0.0], by_own_coin)
        because = f"the server selects the victim and {k} dishonest clients in every round"
    return training.guarantee("malicious", because, [1.0] * k + [0.0], training.at_most(rounds))


def _malicious_with_verified_batches(training: _TrainingRun, parameters: Any) -> Guarantee:
    setting = BatchSetting(
        population=training.population,
        participants=training.participants,
        privacy=parameters.privacy,
        over_selection=parameters.factor,
        dishonest=training.dishonest,
        min_population=parameters.min_population,
    )
    dishonest = training.chances(
        lambda last: [at_least_one(training.rounds, batches_exceed(setting, k)[0]) for k in range(last + 1)]
    )
    because = (
        f"a batch is a candidate with probability at most {float(setting.p):.4g}, wherever the dishonest clients are"
    )
    return training.guarantee(
        "malicious", because, dishonest, lambda r: repeated_by_any(setting.batches, r, training.rounds, setting.p)
    )


def _selection_probability(training: _TrainingRun) -> Fraction:
    parameters: Any = training.plan.experiment.selection
    least = parameters.min_population or parameters.smallest_population(training.population)
    bits = 256 if parameters.protocol == "lotto-server-centric" else 512  # output of the PRF, or of the VRF
    return selection_probability(training.participants, parameters.factor, least, bits)


def worst_coalition(batches: Batches, dishonest: frozenset[int], participants: int) -> tuple[int, int]:
    """Return the most dishonest participants beside an honest client in a round of whole batches, and honest ones.

    Args:
        batches: of the population.
        dishonest: client numbers.
        participants: of a round.

    Returns:
        The number of dishonest participants, and the least number of honest ones with it.
    """
    # The victim's batch is the one with the most dishonest members among those with an honest member; the other batches
    # are those with the most dishonest members.
    bad = (
        np.bincount(batches.of[sorted(dishonest)], minlength=len(batches)) if dishonest else np.zeros(len(batches), int)
    )
    others = max(1, participants // int(batches.sizes.min())) - 1
    # A batch without an honest member has no victim, but the server may well take it beside the victim's.
    order = np.argsort(-bad, kind="stable")
    victims = np.flatnonzero(bad < batches.sizes)
    if not len(victims):
        return 0, 0
    worst = victims[np.argmax(bad[victims])]
    chosen = np.append(order[order != worst][:others], worst)
    k = int(bad[chosen].sum())
    return k, int(batches.sizes[chosen].sum()) - k


def _of_dp_sgd(training: _TrainingRun, accountant: SubsampledGaussianAccountant) -> list[Guarantee]:
    """Return the guarantees of noise that is not shared: colluding clients and availability do not matter."""
    rate = 1.0 if training.plan.selection.client_rate is None else training.plan.selection.client_rate
    before = SubsampledGaussianAccountant(accountant.noise_multiplier, accountant.sample_rate, rate)
    cost = PrivacyCost(before.epsilon({1.0: training.rounds}, training.delta), None, training.rounds)
    because = f"weak client sampling: a client takes part with probability {rate:.4g}, by its own coin"
    honest = Guarantee("honest but curious", cost, cost, because)
    aggregation = training.plan.experiment.aggregation
    if isinstance(aggregation, RandomParticipationParameters) and aggregation.server == "untrusted":
        # In both cases the client tosses the coin by itself, so the server cannot have it in every round.
        if aggregation.hides_participation or training.plan.selection.clients_decide:
            return [honest, Guarantee("malicious", cost, cost, f"{because}, and adds its own noise")]
        local_only = SubsampledGaussianAccountant(accountant.noise_multiplier, accountant.sample_rate)
        always = PrivacyCost(local_only.epsilon({1.0: training.rounds}, training.delta), None, training.rounds)
        why = "only local sampling: the server chooses the participants, and may ask a client in every round"
        return [honest, Guarantee("malicious", always, always, why)]
    return [replace(honest, server="trusted"), _TRUSTED]


def _of_correlated_noise(training: _TrainingRun, accountant: CorrelatedAccountant) -> list[Guarantee]:
    """Return the guarantees of the server's noise, for any dropouts; they depend on a client's possible rounds."""
    apart, most = accountant.separation, accountant.participations
    cost = PrivacyCost(accountant.epsilon({1.0: most}, training.delta), None, most)
    because = f"{most} rounds of a client, {apart} apart or more" if apart > 1 else f"{most} rounds of a client"
    return [Guarantee("trusted", cost, cost, f"{because}; against observers of models alone"), _TRUSTED]


_NOTHING = PrivacyCost(inf, None, None, reason="the server is trusted with the sums before it adds noise")
_TRUSTED = Guarantee("malicious", _NOTHING, _NOTHING, _NOTHING.reason)
