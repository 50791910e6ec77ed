"""Traffic: exact sizes, and vectors that look like noise."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from testbed.aggregation.plain import Plain, PlainParameters, Update
from testbed.aggregation.secagg.client import SecAggClient
from testbed.aggregation.secagg.messages import AdvertiseKeys, KeyAdvert
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.crypto.key_agreement import PrivateKey
from testbed.messages import Vector, encode
from testbed.parties.client import RoleSpec, handles
from tests.aggregation.federations import SmallFederation

N, D = 6, 37


@pytest.mark.parametrize(("bits", "packed"), [(20, 95), (32, 152), (33, 157), (8, 38), (64, 304)])
def test_the_masked_vector_is_packed_to_the_rings_width(bits: int, packed: int) -> None:
    """38 elements: 37 coordinates and the weight."""
    parameters = SecAggParameters(threshold=0.6, bits=bits, levels_bits=4)
    small = SmallFederation(np.zeros((N, D)), parameters)
    small.run()
    stage = next(stage for stage in small.network.exchanges if stage.stage == "secagg/masked-input")
    array, extension, header = 1, 3 if packed + 5 < 256 else 4, 5
    assert set(stage.bytes_up.tolist()) == {array + extension + header + packed}


def masked_inputs(small: Any, number: int = 1) -> dict[int, np.ndarray[Any, Any]]:
    """The vectors as the server would receive them in one round."""
    small.run(number)
    key, found = next((d.key for d, _ in reversed(small.hosts.seen) if d.kind.stage == "secagg/masked-input")), {}
    for host in small.hosts.hosts:
        found.update({client: vector.values.copy() for client, vector in host._vectors[key].items()})
    return found


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_masked_inputs_look_uniform_and_plain_ones_do_not(bits: int) -> None:
    deltas = np.random.default_rng(0).normal(0, 0.05, (4, 6000)).clip(-1, 1)
    small = SmallFederation(deltas, SecAggParameters(threshold=3, bits=bits, levels_bits=12, weights="equal"))
    masked = masked_inputs(small)
    quantisation = small.parameters.quantisation
    for client in range(4):
        plain = quantisation.encode(
            deltas[client], 1, small.randomness.simulation_key(client, 1, "stochastic rounding")
        )
        of_masked, of_plain = (
            stats.chisquare(np.bincount(values.view(np.uint8), minlength=256)).pvalue
            for values in (masked[client], plain)
        )
        assert of_masked > 1e-4
        assert of_plain < 1e-100
        assert abs(np.corrcoef(masked[client].astype(float), plain.astype(float))[0, 1]) < 0.06
    differences = [masked[i] - masked[j] for i in range(4) for j in range(i)]
    for difference in differences:  # no two clients share a mask
        assert stats.chisquare(np.bincount(difference.view(np.uint8), minlength=256)).pvalue > 1e-4


class ShowsItsSecrets(SecAggClient):
    """Leaves its secrets for the test to see."""

    shown: list[tuple[int, bytes, bytes]] = []  # noqa: RUF012

    @handles(AdvertiseKeys)
    def on_advertise_keys(self, message: AdvertiseKeys) -> KeyAdvert:
        advert = super().on_advertise_keys(message)
        assert PrivateKey.from_seed(self.mask_secret).public == advert.mask_key
        self.shown.append((message.round, self.mask_secret, advert.sealing_key))
        return advert


def test_every_round_has_its_own_keys_and_masks() -> None:
    parameters = SecAggParameters(threshold=4)
    deltas = np.random.default_rng(0).uniform(-1, 1, (N, 500))
    small = SmallFederation(deltas, parameters, roles=[RoleSpec(ShowsItsSecrets, parameters)])
    ShowsItsSecrets.shown.clear()
    first, second = masked_inputs(small, 1), masked_inputs(small, 2)
    secrets = [secret for _, *pair in ShowsItsSecrets.shown for secret in pair]
    assert len(set(secrets)) == 2 * 2 * N
    for client in range(N):  # the same update under two masks: the difference of the two is uniform
        difference = first[client] - second[client]
        assert stats.chisquare(np.bincount(difference.view(np.uint8), minlength=256)).pvalue > 1e-4


def test_a_plain_update_costs_four_bytes_a_parameter() -> None:
    small = SmallFederation(np.zeros((N, D)), PlainParameters(), protocol=Plain, samples=range(1, N + 1))
    small.run()
    expected = len(encode(Update(1, Vector(np.zeros(D, np.float32), 0))))
    assert set(small.network.exchanges[-1].bytes_up.tolist()) == {expected}
    assert 4 * D < expected < 4 * D + 16
