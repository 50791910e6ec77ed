"""The PKI refuses clients that want to be in the population more than once, or with a chosen key."""

import pytest

from testbed.adversary import registration
from testbed.adversary.registration import attempts
from testbed.parties.pki import PKI
from testbed.randomness import Randomness


@pytest.mark.parametrize("from_system", [False, True])
@pytest.mark.parametrize("dishonest", [{0}, {1, 4}, {0, 1, 2, 3, 5}])
def test_every_attack_is_refused_or_useless(dishonest: set[int], from_system: bool) -> None:
    count = len(dishonest)
    found = attempts(6, frozenset(dishonest), Randomness(1, secrets_from_system=from_system))
    *refused, grinding = found
    assert [one.checks for one in refused] == [
        ("pki.unauthorised-registration",),
        ("pki.already-registered",),
        ("pki.unauthorised-registration",),
        ("pki.unknown-client",),
    ]
    assert all(one.tried == one.refused == count and one.gained == "nothing" for one in refused)
    assert (grinding.tried, grinding.refused) == (count * registration.GRINDING, 0)
    assert grinding.gained == "nothing: the same VRF key every time"


def test_a_pki_that_draws_a_new_key_each_time_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """With such a PKI, clients gain keys, and the attempts report it."""
    draws = iter(range(10**6))
    monkeypatch.setattr(PKI, "_vrf_secret", lambda self, client: next(draws).to_bytes(32, "big"))
    grinding = attempts(6, frozenset({1, 4}), Randomness(1))[-1]
    assert grinding.gained == f"{2 * registration.GRINDING - 2} more VRF keys"
