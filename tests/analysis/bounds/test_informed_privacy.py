"""What selection guarantees for privacy, against the formulas it stands for and against simulated selections."""

from math import inf
from typing import Any

import numpy as np
import pytest

from analysis.bounds.informed_privacy import guarantees, worst_coalition
from analysis.bounds.lotto_dp import Training, cost_with_lotto, cost_without_lotto
from testbed.batches import Batches
from testbed.experiment.schema import Experiment
from testbed.federation import Plan
from testbed.privacy.keeping import accountant_of, least_noise
from testbed.privacy.skellam import Skellam

N, S, R, DELTA, DIMENSION = 200, 20, 30, 1e-3, 64
SECAGG: dict[str, Any] = {"protocol": "secagg", "weights": "equal", "noise": {"noise_multiplier": 8.0, "scale": 64}}


def plan_of(selection: dict[str, Any], dishonest: Any = 10, **more: Any) -> Plan:
    keys = {"seed": 1, "rounds": R, "population": N, "aggregation": SECAGG, "adversary": {"dishonest": dishonest}}
    return Plan(Experiment.model_validate(keys | {"selection": {"participants": S} | selection} | more), 0)


def found(selection: dict[str, Any], dishonest: Any = 10, **more: Any) -> tuple[Any, Any]:
    plan = plan_of(selection, dishonest, **more)
    accountant = accountant_of(plan, DIMENSION)
    curious, malicious = guarantees(plan, accountant, DELTA, least_noise(plan))
    assert (curious.server, malicious.server) == ("honest but curious", "malicious")
    return curious, malicious


def skellam() -> Skellam:
    of_round = accountant_of(plan_of({}), DIMENSION).of_round
    assert isinstance(of_round, Skellam)
    return of_round


def training(dishonest: int, **more: Any) -> Training:
    given = {"over_selection": 1.3, "min_population": N, "threshold": 0.7} | more
    return Training(dishonest, S, rounds=R, delta=DELTA, mechanism=skellam(), **given)


@pytest.mark.parametrize("protocol", ["random", "weighted-random", "bernoulli", "oort"])
@pytest.mark.parametrize("dishonest", [0, 5, 10, 40])
def test_where_the_server_chooses_it_chooses_the_victim_every_time(protocol: str, dishonest: int) -> None:
    _, malicious = found({"protocol": protocol}, dishonest)
    insecure = cost_without_lotto(training(dishonest))
    assert malicious.cost.epsilon == pytest.approx(insecure.epsilon, rel=1e-9)
    assert (malicious.cost.rounds, malicious.cost.dishonest) == (R, min(dishonest, S - 1))


@pytest.mark.parametrize("variant", ["client-centric", "server-centric"])
@pytest.mark.parametrize("dishonest", [0, 3, 10])
def test_lotto_is_its_corollaries(variant: Any, dishonest: int) -> None:
    _, malicious = found({"protocol": f"lotto-{variant}"}, dishonest)
    corollary = cost_with_lotto(training(dishonest), variant)
    assert malicious.cost.epsilon == pytest.approx(corollary.epsilon, rel=1e-9)
    assert (malicious.cost.rounds, malicious.cost.dishonest) == (corollary.rounds, corollary.dishonest)
    assert malicious.cost.epsilon < found({"protocol": "random"}, dishonest)[1].cost.epsilon


def test_where_lotto_says_nothing_the_clients_own_noise_is_left() -> None:
    """40 of 200: some round has more than 2t - s - 1 = 7 of 20 with certainty; what is left is a share of 1/20."""
    assert cost_with_lotto(training(100), "client-centric").epsilon == inf
    _, malicious = found({"protocol": "lotto-client-centric"}, 100)
    assert malicious.cost.dishonest == 8
    alone = skellam().epsilon(malicious.cost.rounds, DELTA, 1 / S)
    assert alone <= malicious.cost.epsilon <= 1.5 * alone


def test_drop_outs_that_a_malicious_server_claims_cost_more_than_the_corollary_says() -> None:
    """t = 14 of 20 suffice for a sum: with k of them dishonest, noise of 14 - k."""
    _, malicious = found({"protocol": "lotto-client-centric"}, 0)
    r = malicious.fewest.rounds
    assert malicious.fewest.epsilon > malicious.cost.epsilon
    assert malicious.fewest.epsilon >= skellam().epsilon(r, DELTA, 14 / 20)


def test_an_honest_server_leaves_it_to_chance() -> None:
    """Of a client's 30 rounds, more than r of the bound come with less than delta; simulated, they do."""
    curious, _ = found({"protocol": "random"})
    r, q = curious.cost.rounds, curious.cost.q_r
    assert skellam().epsilon(r, DELTA) <= curious.cost.epsilon < skellam().epsilon(R, DELTA)
    generator = np.random.default_rng(3)
    counts = generator.binomial(R, S / N, 10**6)
    assert (counts > r).mean() <= q + 5 * np.sqrt(q / 10**6)
    assert q < DELTA


def test_where_others_may_be_away_only_own_coins_help() -> None:
    away = {"availability": {"model": "bernoulli", "unavailable": 0.3}}
    assert found({"protocol": "random"}, **away)[0].cost.rounds == R
    assert found({"protocol": "bernoulli"}, **away)[0].cost.rounds < R
    assert found({"protocol": "lotto-client-centric"}, **away)[0].cost.rounds < R


def test_who_goes_first_with_fewest_rounds_has_its_turn_no_more() -> None:
    curious, _ = found({"protocol": "weighted-random"})
    assert curious.cost.rounds == R * S // N
    assert curious.cost.epsilon == pytest.approx(skellam().epsilon(3, DELTA), rel=1e-9)


def test_plain_sums_leave_every_client_its_own_noise() -> None:
    plain = {"aggregation": SECAGG | {"protocol": "plain"}}
    curious, malicious = found({"protocol": "weighted-random"}, 0, **plain)
    assert curious.cost.epsilon == pytest.approx(skellam().epsilon(3, DELTA, 1 / S), rel=1e-9)
    assert malicious.cost.epsilon == pytest.approx(skellam().epsilon(R, DELTA, 1 / S), rel=1e-9)


def test_batches_bound_the_coalition_and_nothing_else() -> None:
    """Dishonest clients spread over batches of 5: of 20 participants 4 are dishonest, and 16 share the noise."""
    spread = list(range(0, N, 5))  # one in each batch
    _, malicious = found({"protocol": "batch-partition", "privacy": 5}, spread)
    assert (malicious.cost.dishonest, malicious.cost.rounds) == (4, R)
    assert malicious.cost.epsilon == pytest.approx(skellam().epsilon(R, DELTA, 16 / 20), rel=1e-9)
    _, free = found({"protocol": "random"}, spread)
    assert free.cost.dishonest == 19
    ignored = {"aggregation": SECAGG | {"batches": "ignored"}}
    assert found({"protocol": "batch-partition", "privacy": 5}, spread, **ignored)[1].cost.dishonest == 19


@pytest.mark.parametrize("seed", range(5))
def test_the_worst_coalition_is_the_worst_of_all(seed: int) -> None:
    from itertools import combinations

    generator = np.random.default_rng(seed)
    batches = Batches.consecutive(24, 4)
    dishonest = frozenset(generator.choice(24, 9, replace=False).tolist())
    bad = [len(dishonest & set(batches.members([batch]).tolist())) for batch in range(6)]
    worst = max(
        sum(bad[batch] for batch in chosen)
        for chosen in combinations(range(6), 3)
        if any(bad[batch] < 4 for batch in chosen)
    )
    assert worst_coalition(batches, dishonest, 12) == (worst, 12 - worst)
    assert worst_coalition(batches, frozenset(), 12) == (0, 12)


def test_verified_batches_leave_it_to_chance_which_batches() -> None:
    curious, malicious = found({"protocol": "verifiable-batch-partition", "privacy": 5}, 4)
    _, free = found({"protocol": "batch-partition", "privacy": 5}, [0, 1, 2, 5])
    assert malicious.cost.rounds < R
    assert curious.cost.epsilon <= malicious.cost.epsilon < free.cost.epsilon
    assert malicious.cost.p_k + malicious.cost.q_r < DELTA


def test_dp_sgd_is_weak_client_sampling_and_a_trusted_server_guarantees_nothing_of_itself() -> None:
    from testbed.privacy.subsampled_gaussian import SubsampledGaussianAccountant

    aggregation = {"protocol": "dp-sgd-random-participation", "sample_rate": 0.2, "sigma": 3.0}
    selection = {"protocol": "bernoulli", "client_rate": 0.1}
    wcs = SubsampledGaussianAccountant(3.0, 0.2, 0.1).epsilon({1.0: R}, DELTA)

    def of(server: str) -> list[Any]:
        keys = {"seed": 1, "rounds": R, "population": N, "selection": selection}
        plan = Plan(Experiment.model_validate(keys | {"aggregation": aggregation | {"server": server}}), 0)
        return guarantees(plan, accountant_of(plan, DIMENSION), DELTA, least_noise(plan))

    assert [one.cost.epsilon for one in of("trusted")] == [wcs, inf]
    assert [one.cost.epsilon for one in of("untrusted")] == [wcs, wcs]
