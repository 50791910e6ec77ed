"""Guarantees of selections for privacy, against their formulas and against simulated selections."""

from fractions import Fraction
from math import inf
from typing import Any

import numpy as np
import pytest

from analysis.bounds.informed_privacy import guarantees, worst_coalition
from analysis.bounds.lotto_rounds import Training, cost_with_lotto, cost_without_lotto
from analysis.bounds.residual_noise import MAX_SIZES_EXAMINED, ResidualNoise
from analysis.bounds.tails import survival
from testbed.aggregation.secagg_plus.parameters import SecAggPlusParameters
from testbed.batches import Batches
from testbed.engine.plan import RunPlan
from testbed.experiment.schema import Experiment
from testbed.privacy.accounting import Skellam
from testbed.privacy.ledger import PrivacyCharge

N, S, R, DELTA, DIMENSION = 200, 20, 30, 1e-3, 64
SECAGG: dict[str, Any] = {"protocol": "secagg", "weights": "equal", "noise": {"noise_multiplier": 8.0, "scale": 64}}


def plan_of(selection: dict[str, Any], dishonest: Any = 10, **more: Any) -> RunPlan:
    keys = {"seed": 1, "rounds": R, "population": N, "aggregation": SECAGG, "adversary": {"dishonest": dishonest}}
    return RunPlan(Experiment.model_validate(keys | {"selection": {"participants": S} | selection} | more), 0)


def found(selection: dict[str, Any], dishonest: Any = 10, **more: Any) -> tuple[Any, Any]:
    plan = plan_of(selection, dishonest, **more)
    accountant = plan.noise_plan(DIMENSION).accountant
    curious, malicious = guarantees(plan, accountant, DELTA)
    assert (curious.server, malicious.server) == ("honest but curious", "malicious")
    return curious, malicious


def skellam() -> Skellam:
    of_round = plan_of({}).noise_plan(DIMENSION).accountant.of_round
    assert isinstance(of_round, Skellam)
    return of_round


def training(dishonest: int, **more: Any) -> Training:
    given = {"over_selection": 1.3, "min_population": N, "threshold": 0.7} | more
    return Training(dishonest, S, rounds=R, delta=DELTA, mechanism=skellam(), **given)


def test_a_client_that_tosses_its_own_coin_is_there_as_often_as_it_says() -> None:
    """Colluding clients do not make it take part more often."""
    selection = {"protocol": "bernoulli", "client_rate": 0.1, "participants": 10}
    _, drawn = found(selection)
    _, decides = found(selection | {"coins": "clients"})
    assert drawn.cost.rounds == R
    assert decides.cost.rounds < R
    assert decides.cost.epsilon < drawn.cost.epsilon
    assert decides.cost.dishonest == drawn.cost.dishonest


@pytest.mark.parametrize("protocol", ["random", "weighted-random", "oort"])
@pytest.mark.parametrize("dishonest", [0, 5, 10, 40])
def test_a_server_that_chooses_takes_the_victim_in_every_round(protocol: str, dishonest: int) -> None:
    _, malicious = found({"protocol": protocol}, dishonest, privacy={"report_losses": True})  # which oort needs
    insecure = cost_without_lotto(training(dishonest))
    assert malicious.cost.epsilon == pytest.approx(insecure.epsilon, rel=1e-9)
    assert (malicious.cost.rounds, malicious.cost.dishonest) == (R, min(dishonest, S - 1))


@pytest.mark.parametrize("dishonest", [0, 5, 100])
def test_where_the_server_chooses_the_size_of_a_round_it_chooses_the_worst(dishonest: int) -> None:
    """Rounds of 2 to 200: the noise is that of the worst size; `participants` is only the expected number."""
    curious, malicious = found({"protocol": "bernoulli"}, dishonest)
    shares = []
    for s in range(2, N + 1):
        k, t = min(dishonest, s - 1), -(-7 * s // 10)
        shares.append(1 / s if k >= 2 * t - s else (s - k) / s)
    assert malicious.cost.epsilon == pytest.approx(skellam().epsilon(R, DELTA, min(shares)), rel=1e-9)
    assert malicious.because.endswith("; in rounds of 2 to 200")
    assert malicious.fewest.epsilon >= malicious.cost.epsilon
    assert curious.fewest.epsilon == pytest.approx(skellam().epsilon(curious.fewest.rounds, DELTA, 0.7), rel=0.1)


def test_half_of_sixty_clients_with_their_own_coins() -> None:
    """The ledger's colluding column charges one s-th of the noise in rounds of about 54, and that is guaranteed."""
    selection = {"protocol": "bernoulli", "client_rate": 0.9, "participants": 10}
    _, malicious = found(selection, 30, population=60)
    assert malicious.cost.epsilon >= skellam().epsilon(R, DELTA, 1 / 54)
    assert malicious.cost.epsilon == pytest.approx(skellam().epsilon(R, DELTA, 1 / 60), rel=1e-9)
    _, plain = found(selection, 0, population=60, aggregation=SECAGG | {"protocol": "plain"})
    assert plain.cost.epsilon == malicious.cost.epsilon


@pytest.mark.parametrize("section", [{}, {"threshold": 0.9}, {"consistency": "none"}, {"protocol": "secagg-plus"}])
@pytest.mark.parametrize("dishonest", [0, 4, 15])
def test_no_round_costs_more_than_the_guarantee(section: dict[str, Any], dishonest: int) -> None:
    """The ledger's colluding share of every size, with every number of accomplices, survivors and dropouts."""
    plan = plan_of({"protocol": "bernoulli"}, dishonest, population=24, aggregation=SECAGG | section)
    left, noise = ResidualNoise.of(plan), plan.noise_plan(DIMENSION)
    assert noise is not None
    for s in range(2, 25):
        fewest = plan.aggregation.guarantees(s).min_sum_size
        for accomplices in range(min(dishonest, s - 1) + 1):
            charge = PrivacyCharge(noise, range(s - accomplices, s))
            for survivors in {s, fewest}:
                everybody, there = np.arange(s), np.arange(s - survivors, s)  # the dropouts are honest
                share = min(
                    charges.colluding_noise
                    for charges in charge.of_round(everybody, there, survivors / s, everybody, False)
                )
                if survivors > accomplices:
                    assert share >= left.from_malicious(dishonest, survivors < s) - 1e-12


def test_more_sizes_than_can_be_looked_at_leave_everybody_its_own_noise() -> None:
    left = ResidualNoise.of(plan_of({"protocol": "bernoulli"}, 0, population=MAX_SIZES_EXAMINED + 3))
    assert left.withstood == -1
    assert left.from_malicious(0, False) == left.from_curious(0, True) == 1 / (MAX_SIZES_EXAMINED + 3)


@pytest.mark.parametrize("protocol", ["random", "lotto-client-centric"])
def test_without_signed_survivors_a_malicious_server_sees_every_update(protocol: str) -> None:
    """6 of 20 split the sharing, and nobody at all shrinks the sum: neither counts on accomplices."""
    for dishonest in (0, 6):
        curious, malicious = found(
            {"protocol": protocol}, dishonest, aggregation=SECAGG | {"consistency": "none", "threshold": 0.7}
        )
        r = malicious.cost.rounds
        assert malicious.cost.epsilon >= skellam().epsilon(r, DELTA, 1 / S) * (1 - 1e-9)
        assert malicious.fewest == malicious.cost
        assert malicious.because.endswith("; each update counts as seen with its own noise alone")
        signed, _ = found({"protocol": protocol}, dishonest)
        assert curious == signed  # it rests on a server that follows the protocol


def test_sums_over_single_batches_leave_everybody_its_own_noise() -> None:
    small = {"aggregation": SECAGG | {"smallest_sum": 10}}
    curious, malicious = found({"protocol": "batch-partition", "privacy": 5}, 0, **small)
    assert malicious.cost.epsilon == pytest.approx(skellam().epsilon(R, DELTA, 1 / S), rel=1e-9)
    assert curious.fewest.epsilon == pytest.approx(skellam().epsilon(R, DELTA, 10 / S), rel=1e-9)


def test_a_sum_among_neighbours_may_be_split() -> None:
    """Into parts that hold t - k honest ones of a neighbourhood, at least."""
    section = {"protocol": "secagg-plus", "dropouts": 0.05, "dishonest": 0.02, "security": 10}
    plus = {"aggregation": SECAGG | section, "population": 400}
    plan = plan_of({"protocol": "random", "participants": 200}, 3, **plus)
    parameters = plan.experiment.aggregation
    assert isinstance(parameters, SecAggPlusParameters)
    chosen = parameters.neighbourhood(200)
    assert chosen.threshold < chosen.survivors
    _, malicious = found({"protocol": "random", "participants": 200}, 3, **plus)
    share = (chosen.threshold - 3) / 200
    assert malicious.fewest.epsilon == pytest.approx(skellam().epsilon(R, DELTA, share), rel=1e-9)
    assert f"may be split into parts of {chosen.threshold}" in malicious.because


@pytest.mark.parametrize("variant", ["client-centric", "server-centric"])
@pytest.mark.parametrize("dishonest", [0, 3, 10])
def test_lotto_is_its_corollaries(variant: Any, dishonest: int) -> None:
    _, malicious = found({"protocol": f"lotto-{variant}"}, dishonest)
    corollary = cost_with_lotto(training(dishonest), variant)
    assert malicious.cost.epsilon == pytest.approx(corollary.epsilon, rel=1e-9)
    assert (malicious.cost.rounds, malicious.cost.dishonest) == (corollary.rounds, corollary.dishonest)
    assert malicious.cost.epsilon < found({"protocol": "random"}, dishonest)[1].cost.epsilon


def test_where_lotto_says_nothing_the_clients_own_noise_is_left() -> None:
    """40 of 200: some round has more than 2t - s - 1 = 7 of 20 with certainty; a share of 1/20 is left."""
    assert cost_with_lotto(training(100), "client-centric").epsilon == inf
    _, malicious = found({"protocol": "lotto-client-centric"}, 100)
    assert malicious.cost.dishonest == 8
    alone = skellam().epsilon(malicious.cost.rounds, DELTA, 1 / S)
    assert alone <= malicious.cost.epsilon <= 1.5 * alone


def test_dropouts_claimed_by_a_malicious_server_cost_more_than_the_corollary_says() -> None:
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


def test_noise_that_others_skip_costs_as_much_as_chance_brings_of_them() -> None:
    """20 of 40 with 24 that skip theirs: simulated, no more clients exceed it than delta allows."""
    skipping = {"dishonest": 24, "clients": ["skip-noise"]}
    given = {"population": 40, "adversary": skipping, "rounds": 20}
    curious, _ = found({"protocol": "random"}, **given)
    generator, runs = np.random.default_rng(4), 10**5
    rounds = generator.random((runs, 20)) < S / 40  # of one honest client
    skip = np.where(rounds, generator.hypergeometric(24, 15, S - 1, (runs, 20)), 0)
    beyond = (rounds.sum(axis=1) > curious.cost.rounds) | (skip.max(axis=1) > curious.cost.dishonest)
    chance = curious.cost.p_k + curious.cost.q_r
    assert beyond.mean() <= chance + 5 * np.sqrt(chance / runs)
    assert 0 < chance < DELTA
    assert 0 < curious.cost.dishonest < S - 1
    k, r = curious.cost.dishonest, curious.cost.rounds
    assert curious.cost.epsilon >= skellam().epsilon(r, DELTA, (S - k) / S)
    k, r = curious.fewest.dishonest, curious.fewest.rounds
    assert curious.fewest.epsilon >= skellam().epsilon(r, DELTA, max(1, 14 - k) / S)
    assert curious.because.endswith("; up to k participants, by chance, add no noise")
    assert found({"protocol": "random"}, 24, population=40)[0].cost.dishonest == 0  # they add it


def test_where_chance_is_not_known_all_that_skip_their_noise_are_always_there() -> None:
    skipping = {"adversary": {"dishonest": 5, "clients": ["skip-noise"]}}
    curious, _ = found({"protocol": "weighted-random"}, **skipping)
    assert (curious.cost.dishonest, curious.cost.rounds) == (5, 3)
    assert curious.cost.epsilon == pytest.approx(skellam().epsilon(3, DELTA, 15 / S), rel=1e-9)
    assert curious.because.endswith("; up to 5 other participants add no noise in any round")
    nobody, _ = found({"protocol": "weighted-random"}, adversary={"dishonest": 150, "clients": ["skip-noise"]})
    assert nobody.fewest.epsilon == pytest.approx(skellam().epsilon(3, DELTA, 1 / S), rel=1e-9)  # the victim's own


def test_where_others_may_be_away_only_own_coins_help() -> None:
    away = {"availability": {"model": "bernoulli", "unavailable": 0.3}}
    assert found({"protocol": "random"}, **away)[0].cost.rounds == R
    assert found({"protocol": "bernoulli"}, **away)[0].cost.rounds < R
    assert found({"protocol": "lotto-client-centric"}, **away)[0].cost.rounds < R


def test_clients_with_the_fewest_rounds_go_first_and_take_no_extra_turns() -> None:
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


def test_batches_of_uneven_size_are_drawn_as_batches() -> None:
    """59 clients in 5 batches of 10 or more, 3 of them in a round: a client has 3/5, and not 30/59."""
    selection = {"protocol": "verifiable-batch-partition", "privacy": 10, "participants": 30, "over_selection": 1.3}
    curious, _ = found(selection, 0, population=59)
    assert curious.because.startswith("3 of 5 batches at random")
    assert curious.cost.q_r == survival(curious.cost.rounds, R, Fraction(3, 5))
    assert "in rounds of 30 to 36" in curious.because


def test_the_worst_coalition_has_as_many_batches_as_a_round() -> None:
    """Batches of 11 and 12 where T = 10: 30 participants are 3 of them, though 30 is not 3 times 11."""
    spread = [0, 12, 24, 36, 48]
    selection = {"protocol": "batch-partition", "privacy": 10, "participants": 30}
    _, malicious = found(selection, spread, population=59)
    assert malicious.cost.dishonest == 3


def test_dp_sgd_is_weak_client_sampling_and_a_trusted_server_guarantees_nothing_of_itself() -> None:
    from testbed.privacy.gaussian import SubsampledGaussianAccountant

    aggregation = {"protocol": "dp-sgd-random-participation", "sample_rate": 0.2, "sigma": 3.0}
    selection = {"protocol": "bernoulli", "client_rate": 0.1}
    wcs = SubsampledGaussianAccountant(3.0, 0.2, 0.1).epsilon({1.0: R}, DELTA)

    def of(server: str, coins: str = "server", **more: str) -> list[float]:
        keys = {"seed": 1, "rounds": R, "population": N, "selection": selection | {"coins": coins}}
        plan = RunPlan(Experiment.model_validate(keys | {"aggregation": aggregation | {"server": server} | more}), 0)
        return [one.cost.epsilon for one in guarantees(plan, plan.noise_plan(DIMENSION).accountant, DELTA)]

    assert of("trusted") == of("trusted", "clients") == [wcs, inf]
    assert of("untrusted") == [wcs, wcs]
    asked = SubsampledGaussianAccountant(3.0, 0.2).epsilon({1.0: R}, DELTA)
    assert of("untrusted", answers="participants") == [wcs, asked]  # the server chooses the participants
    assert of("untrusted", "clients", answers="participants") == [wcs, wcs]  # it cannot
