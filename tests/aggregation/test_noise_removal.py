"""Noise that is as planned however many drop out: measured in sums, and what is revealed for it."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from testbed.aggregation.noise_removal import SharesAndNoise, UnmaskAndRemove
from testbed.aggregation.secagg import SecAggParameters
from testbed.aggregation.secagg_client import SecAggClient
from testbed.aggregation.secagg_messages import ShareKeys
from testbed.parties.client import RoleSpec, handles

N, D, T = 8, 4000, 3
MULTIPLIER, SCALE = 1.5, 64.0
STAGES = ("secagg/advertise-keys", "secagg/share-keys", "secagg/masked-input", "secagg/consistency", "secagg/unmask")
BEFORE = STAGES[:3]  # who leaves in them is not in the sum


def parameters(enforced: bool = True, **changes: Any) -> SecAggParameters:
    noise = {"noise_multiplier": MULTIPLIER, "scale": SCALE}
    if enforced:
        noise["enforcement"] = {"tolerated_dropouts": T}
    return SecAggParameters(**{"threshold": 5, "weights": "equal", "noise": noise} | changes)


def play(federation: Any, dropouts: int, stage: str, **keywords: Any) -> tuple[Any, Any]:
    small = federation(
        np.zeros((N, D)), keywords.pop("parameters", parameters()),
        leaving={stage: set(range(1, 1 + dropouts))}, **keywords,
    )  # fmt: skip
    return small, small.run()


def variance_of(small: Any, aggregate: Any) -> float:
    """Of the sum's coordinates, as a part of what was planned; updates are 0, so that all there is is noise."""
    noise = small.parameters.noise
    in_steps = aggregate.mean * len(aggregate.survivors) * noise.steps(D) / noise.clip
    rotated = 4096 / D  # the mean's d coordinates hold d of D parts of the noise
    assert rotated > 1
    return float(np.square(in_steps).mean() / (MULTIPLIER * SCALE) ** 2)


BAND = chi2.ppf((1e-6, 1 - 1e-6), D) / D  # of the variance of D coordinates (rotated: close to Gaussian)
ROUNDING = N * 0.25 / (MULTIPLIER * SCALE) ** 2


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("dropouts", range(T + 1))
def test_the_sum_has_the_planned_noise(federation: Any, dropouts: int, stage: str) -> None:
    small, aggregate = play(federation, dropouts, stage)
    assert len(aggregate.survivors) == (N - dropouts if stage in BEFORE else N)
    assert aggregate.noise == 1.0
    assert BAND[0] <= variance_of(small, aggregate) <= BAND[1] + ROUNDING
    assert small.refusals() == []
    assert small.misbehaviour() == []


def test_without_it_dropouts_take_their_noise_along(federation: Any) -> None:
    small, aggregate = play(federation, T, "secagg/masked-input", parameters=parameters(enforced=False))
    assert aggregate.noise == (N - T) / N
    assert BAND[0] * (N - T) / N <= variance_of(small, aggregate) <= BAND[1] * (N - T) / N + ROUNDING


def test_more_dropouts_than_tolerated_cost_noise(federation: Any) -> None:
    loose = parameters(noise={"noise_multiplier": MULTIPLIER, "scale": SCALE, "enforcement": {"tolerated_dropouts": 1}})
    small, aggregate = play(federation, 3, "secagg/masked-input", parameters=loose)
    assert aggregate.noise == pytest.approx(5 / 7)
    assert BAND[0] * 5 / 7 <= variance_of(small, aggregate) <= BAND[1] * 5 / 7 + ROUNDING


def test_the_mean_is_that_of_the_survivors(federation: Any) -> None:
    deltas = np.random.default_rng(5).normal(size=(N, D))
    deltas *= 0.9 / np.linalg.norm(deltas, axis=1, keepdims=True)
    little = parameters(noise={"noise_multiplier": 1e-3, "scale": 4096.0, "enforcement": {"tolerated_dropouts": T}})
    small = federation(deltas, little, leaving={"secagg/share-keys": {2}, "secagg/consistency": {6}})
    aggregate = small.run()
    assert aggregate.survivors.tolist() == [0, 1, 3, 4, 5, 6, 7]
    assert np.linalg.norm(aggregate.mean - deltas[aggregate.survivors].mean(axis=0)) < 0.02


def test_the_same_seed_gives_the_same_sum(federation: Any) -> None:
    first, again = (play(federation, 2, "secagg/masked-input")[1].mean for _ in range(2))
    assert (first == again).all()


# -- what is revealed, and to whom -----------------------------------------------------------------------------------


def secrets_of(small: Any, client: int) -> list[bytes]:
    role = next(role for role in small.client(client).roles.values() if isinstance(role, SecAggClient))
    return role.noise_chain(N, 1)


class Remembers(SecAggClient):
    """An honest client that keeps its secrets for the test."""

    kept: dict[int, list[bytes]]

    @handles(ShareKeys)
    def on_share_keys(self, message: ShareKeys) -> Any:
        self.kept[self.client.number] = self.noise_chain(self._participants, self._round)
        return super().on_share_keys(message)


@pytest.mark.parametrize("dropouts", range(T + 1))
def test_no_secret_travels_in_the_clear(federation: Any, dropouts: int) -> None:
    Remembers.kept = {}
    small, _ = play(
        federation, dropouts, "secagg/masked-input", roles=[RoleSpec(Remembers, parameters(), only=set(range(N)))]
    )
    assert len(Remembers.kept) == N
    seen = b"".join(
        part
        for delivery, answers in small.hosts.seen
        for part in (delivery.header, *(delivery.private or {}).values(), *answers.headers.values())
    )
    assert len(seen) > 10_000
    for secrets in Remembers.kept.values():
        assert len(secrets) == T
        assert not any(secret in seen for secret in secrets)


def revealed_noise(small: Any) -> dict[int, list[int]]:
    """Who has revealed shares of whose noise."""
    found = {}
    for delivery, answers in small.hosts.seen:
        if delivery.kind is UnmaskAndRemove:
            from testbed.messages import decode

            for client, header in answers.headers.items():
                found[client] = [row.client for row in decode(SharesAndNoise, header).noise]
    return found


def test_shares_are_revealed_of_survivors_alone_and_of_nobody_once_all_noise_is_needed(federation: Any) -> None:
    small, aggregate = play(federation, 1, "secagg/masked-input")
    assert revealed_noise(small) == dict.fromkeys(aggregate.survivors.tolist(), aggregate.survivors.tolist())
    small, _ = play(federation, T, "secagg/masked-input")
    assert set(map(tuple, revealed_noise(small).values())) == {()}
