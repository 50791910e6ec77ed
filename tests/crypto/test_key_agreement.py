"""X25519 against RFC 7748, the derived keys against HKDF by hand, and keys that must be refused."""

import hmac
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.crypto import InvalidKey, edwards25519, key_agreement
from testbed.crypto.key_agreement import PrivateKey, check_public
from testbed.errors import ProtocolError
from tests.crypto.published import vectors

seeds = st.binary(min_size=32, max_size=32)

P = 2**255 - 19
SMALL_ORDER = [
    0,
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
    P - 1,
    P,
    P + 1,
]
"""u-coordinates of the points of small order on the curve and its twist (RFC 7748 section 7)."""


def test_keys_and_secret_are_those_of_rfc_7748():
    for vector in vectors("x25519/rfc7748")["vectors"]:
        alice = PrivateKey.from_seed(bytes.fromhex(vector["alice_secret"]))
        bob = PrivateKey.from_seed(bytes.fromhex(vector["bob_secret"]))
        assert alice.public.hex() == vector["alice_public"]
        assert bob.public.hex() == vector["bob_public"]
        assert alice.exchange(bob.public) == bob.exchange(alice.public) == bytes.fromhex(vector["shared"])


@given(seeds, seeds, st.binary(max_size=60))
def test_both_sides_derive_the_same_key_by_hkdf(one, other, purpose):
    alice, bob = PrivateKey.from_seed(one), PrivateKey.from_seed(other)
    key = alice.agree(bob.public, purpose)
    assert key == bob.agree(alice.public, purpose)
    low, high = min(alice.public, bob.public), max(alice.public, bob.public)
    info = b"testbed/key-agreement/v1" + len(purpose).to_bytes(4, "big") + purpose + low + high
    extracted = hmac.digest(bytes(32), alice.exchange(bob.public), "sha256")
    assert key == hmac.digest(extracted, info + b"\x01", "sha256")


@given(seeds, seeds, st.binary(max_size=60))
def test_both_private_keys_give_the_same_key(one, other, purpose):
    alice, bob = PrivateKey.from_seed(one), PrivateKey.from_seed(other)
    assert alice.agree_with(bob, purpose) == bob.agree_with(alice, purpose) == alice.agree(bob.public, purpose)


def multiplying_to(product, monkeypatch):
    monkeypatch.setattr(edwards25519, "multiply_scalars", lambda *_: product.to_bytes(32, "little"))


@pytest.mark.parametrize("eighth", [2**251, 2**251 + 5, 2**252 - 1])
@pytest.mark.parametrize("negative", [False, True])
def test_products_are_mapped_to_valid_x25519_scalars(eighth, negative, monkeypatch):
    pair, secrets = PrivateKey.from_seed(bytes(32)), []
    multiplying_to(edwards25519.ORDER - eighth if negative else eighth, monkeypatch)
    monkeypatch.setattr(key_agreement, "_agreed", lambda secret, *_: secrets.append(secret))
    pair.agree_with(pair, b"x")
    assert secrets == [PrivateKey.from_seed((8 * eighth).to_bytes(32, "little")).public]


@pytest.mark.parametrize("product", [0, 1, edwards25519.ORDER - 2**252, 2**252, edwards25519.ORDER - 1])
def test_a_product_without_valid_scalar_falls_back(product, monkeypatch):
    alice, bob = (PrivateKey.from_seed(bytes([number]) * 32) for number in (1, 2))
    multiplying_to(product, monkeypatch)
    assert alice.agree_with(bob, b"x") == alice.agree(bob.public, b"x")


def test_keys_differ_by_purpose_and_by_pair():
    alice, bob, carol = (PrivateKey.from_seed(bytes([number]) * 32) for number in (1, 2, 3))
    keys = {
        alice.agree(bob.public, b"mask"),
        alice.agree(bob.public, b"seal"),
        alice.agree(carol.public, b"mask"),
        bob.agree(carol.public, b"mask"),
        alice.agree(alice.public, b"mask"),
    }
    assert len(keys) == 5


@pytest.mark.parametrize("u", SMALL_ORDER)
@pytest.mark.parametrize("top_bit", [0, 1])
def test_keys_of_small_order_are_refused(u, top_bit):
    public = (u | top_bit << 255).to_bytes(32, "little")
    private = PrivateKey.from_seed(bytes(range(32)))
    with pytest.raises(InvalidKey, match="small order"):
        private.agree(public, b"mask")
    with pytest.raises(InvalidKey, match="small order"):
        private.exchange(public)


def test_wrong_lengths_are_refused():
    private = PrivateKey.from_seed(bytes(32))
    for public in (b"", private.public[:-1], private.public + b"\x00"):
        with pytest.raises(InvalidKey, match="32 bytes"):
            private.agree(public, b"mask")
    with pytest.raises(InvalidKey, match="32 bytes"):
        PrivateKey.from_seed(bytes(31))


def test_the_secret_is_not_shown():
    private = PrivateKey.from_seed(bytes(range(32)))
    assert repr(private) == f"PrivateKey(public={private.public.hex()})"


@given(st.binary(max_size=40))
def test_any_bytes_give_a_key_or_a_typed_error(public):
    try:
        key = PrivateKey.from_seed(bytes(range(32))).agree(public, b"mask")
    except ProtocolError:
        assert len(public) != 32 or int.from_bytes(public, "little") % 2**255 in SMALL_ORDER
    else:
        assert len(key) == 32


@given(st.sampled_from([*SMALL_ORDER, 2**254]), st.integers(-3, 3), st.booleans(), seeds)
def test_a_public_key_is_refused_exactly_if_every_exchange_is(near, off, high, seed):
    public = ((near + off) % 2**255 | high << 255).to_bytes(32, "little")
    try:
        PrivateKey.from_seed(seed).exchange(public)
    except InvalidKey as error:
        with pytest.raises(InvalidKey, match=str(error)):
            check_public(public)
    else:
        check_public(public)


@given(seeds)
def test_a_pair_is_the_same_in_another_process(seed):
    pair, other = PrivateKey.from_seed(seed), PrivateKey.from_seed(bytes(range(32)))
    sent = pickle.loads(pickle.dumps(pair))  # noqa: S301  # written by this test
    assert (sent.public, sent.agree(other.public, b"x")) == (pair.public, other.agree(pair.public, b"x"))
