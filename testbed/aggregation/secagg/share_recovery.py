"""Recovery of secrets from revealed shares, some of which may be wrong, and settlement of the fault.

Shamir's shares are a Reed-Solomon code: m shares of a secret with threshold t are consistent or show that one is wrong,
and up to (m - t) / 2 wrong ones can be found and left out. Decoding: Gao, A New Algorithm for Decoding Reed-Solomon
Codes, 2003. The usual case, checking that no share is wrong, costs as much as one reconstruction. With m = t nothing
can be checked by decoding.

A wrong share was changed by the client that revealed it, or dealt wrongly by the owner of the secret. If too many
are wrong, the server asks the holders to prove which shares they were dealt (docs/explanation/wrong-shares.md).
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import mul
from typing import TYPE_CHECKING

import gmpy2
import msgspec
import numpy as np

from testbed.aggregation.kit.message_parts import ShareOf, point_of
from testbed.aggregation.secagg.messages import MASK_KEY, SELF_MASK, ProveShare, associated_data, open_share
from testbed.crypto.key_agreement import PrivateKey
from testbed.crypto.shamir import PRIME, SECRET_BYTES, LagrangeWeights, inverses, products_of_distances
from testbed.emulation.compute.cost import meter
from testbed.errors import ProtocolError, RoundAborted
from testbed.network.contract import EXCLUDED, ids

if TYPE_CHECKING:
    from testbed.aggregation.secagg.round import SecAggRound
    from testbed.network import Replies

_COEFFICIENT_BYTES = 64  # reduced modulo a 257-bit prime: as good as uniform

Polynomial = list["gmpy2.mpz"]  # coefficients of 1, x, x^2, ...; no leading zero; [] is zero


@dataclass
class Recovered:
    """Result of a recovery from revealed shares.

    Attributes:
        secrets: by client, 32 bytes.
        wrong: (owner of the secret, client that revealed the share) for each wrong share.
        undecided: by client, the reason why its secret cannot be recovered: too many shares are wrong.
    """

    secrets: dict[int, bytes] = field(default_factory=dict)
    wrong: list[tuple[int, int]] = field(default_factory=list)
    undecided: dict[int, str] = field(default_factory=dict)


def recover(t: int, clients: Sequence[int], revealed: Mapping[int, Sequence[ShareOf]]) -> Recovered:
    """Recover the secrets of clients from revealed shares.

    Args:
        t: the threshold.
        clients: the owners of the wanted secrets.
        revealed: by holder, the shares that it has revealed.

    Raises:
        RoundAborted: a secret has fewer than t shares (``below-threshold``).
    """
    shares_of: dict[int, dict[int, bytes]] = {client: {} for client in clients}
    none: dict[int, set[int]] = {client: set() for client in clients}
    for holder, rows in sorted(revealed.items()):
        for row in rows:
            if row.client not in shares_of:
                continue
            if is_share(row.share):
                shares_of[row.client][holder] = row.share
            else:
                none[row.client].add(holder)
    coins = _coins(shares_of)
    groups: dict[tuple[int, ...], _Holders] = {}  # most secrets come from the same holders
    recovered = Recovered()
    for client, shares in shares_of.items():
        if len(shares) < t:
            others = len(none[client] - shares.keys())
            if len(shares) + others >= t:
                recovered.undecided[client] = f"{others} of {len(shares) + others} shares are too large"
                continue
            raise RoundAborted("below-threshold", f"{len(shares)} of {t} needed shares for client {client}")
        holders = tuple(shares)
        if holders not in groups:
            groups[holders] = _Holders(holders, t, coins)
        try:
            recovered.secrets[client], wrong = groups[holders].secret(list(shares.values()))
        except ProtocolError as error:
            recovered.undecided[client] = str(error)
            continue
        recovered.wrong += [(client, holders[position]) for position in wrong]
    return recovered


def is_share(share: bytes) -> bool:
    """Return whether these 33 bytes are a number that an honest dealer can have dealt."""
    return bool(int.from_bytes(share, "big") < PRIME)  # gmpy2 has no types


def _coins(shares_of: Mapping[int, Mapping[int, bytes]]) -> bytes:
    """Return the coins of the linear check; they depend on all shares, so no client can choose shares that pass it."""
    digest = hashlib.sha256(b"testbed/secagg/share-check/v1")
    for client, shares in shares_of.items():
        for holder, share in shares.items():
            digest.update(client.to_bytes(8, "big") + holder.to_bytes(8, "big") + share)
    return digest.digest()


class _Holders:
    """Values that are computed once for all secrets with shares from the same clients.

    Args:
        holders: the m clients.
        t: the threshold.
        coins: bytes that decide the combination of parity checks.
    """

    def __init__(self, holders: Sequence[int], t: int, coins: bytes) -> None:
        self._t = t
        self._points = [gmpy2.mpz(point_of(holder)) for holder in holders]
        self._weights = LagrangeWeights([point_of(holder) for holder in holders[:t]])
        self._parity = self._check(coins) if len(holders) > t else []

    def _check(self, coins: bytes) -> Polynomial:
        """Return a random `(m,)` word of the dual code: its product with consistent shares is 0."""
        redundancy = len(self._points) - self._t
        stream = hashlib.shake_256(coins).digest(_COEFFICIENT_BYTES * redundancy)
        random = [
            gmpy2.mpz.from_bytes(stream[at : at + _COEFFICIENT_BYTES], "big") % PRIME
            for at in range(0, len(stream), _COEFFICIENT_BYTES)
        ]
        return [
            _at(random, point) * scale % PRIME
            for point, scale in zip(self._points, _barycentric(self._points), strict=True)
        ]

    def secret(self, shares: Sequence[bytes]) -> tuple[bytes, list[int]]:
        """Return the secret and the positions of wrong shares; raises `ProtocolError` if it cannot be found."""
        meter("shamir.reconstruct.term", self._t + len(self._parity))
        # m = t: no redundancy, so nothing can be checked.
        if not self._parity:
            return self._weights.reconstruct(shares), []
        values = [gmpy2.mpz.from_bytes(share, "big") for share in shares]
        # The usual case: one product shows that no share is wrong.
        if sum(map(mul, self._parity, values)) % PRIME == 0:
            return self._weights.reconstruct(shares[: self._t]), []
        meter("shamir.reconstruct.term", 4 * len(values) ** 2)
        polynomial = decode(self._points, values, self._t)
        secret = polynomial[0] if polynomial else gmpy2.mpz(0)
        if secret >= 1 << (8 * SECRET_BYTES):
            raise ProtocolError("the shares give no 32-byte secret")
        wrong = [i for i, point in enumerate(self._points) if _at(polynomial, point) != values[i]]
        return int(secret).to_bytes(SECRET_BYTES, "big"), wrong


def decode(points: Polynomial, values: Polynomial, t: int) -> Polynomial:
    """Return the polynomial with fewer than t coefficients that meets all but at most (m - t) / 2 values.

    Args:
        points: `(m,)` distinct.
        values: `(m,)` modulo PRIME.
        t: the threshold.

    Returns:
        Coefficients of 1, x, x^2, ...

    Raises:
        ProtocolError: there is no such polynomial.
    """
    count = len(points)
    everything: Polynomial = [gmpy2.mpz(1)]  # the product of all (x - point)
    for point in points:
        everything = _minus([gmpy2.mpz(0), *everything], [point * c for c in everything])
    through: Polynomial = [gmpy2.mpz(0)] * count  # the polynomial that meets all values
    for point, value, scale in zip(points, values, _barycentric(points), strict=True):
        others, factor = _divided(everything, [-point % PRIME, gmpy2.mpz(1)])[0], value * scale % PRIME
        through = [a + factor * b for a, b in zip(through, others, strict=True)]
    before, rest = everything, _trimmed(through)
    locator_before: Polynomial = []
    locator: Polynomial = [gmpy2.mpz(1)]
    # Gao's rule: stop the extended Euclidean algorithm below the degree (m + t) / 2.
    while 2 * (len(rest) - 1) >= count + t:
        quotient, remainder = _divided(before, rest)
        before, rest = rest, remainder
        locator_before, locator = locator, _minus(locator_before, _times(quotient, locator))
    polynomial, remainder = _divided(rest, locator)
    if remainder or len(polynomial) > t:
        raise ProtocolError(f"more than {(count - t) // 2} of {count} shares are wrong, with a threshold of {t}")
    return polynomial


def _barycentric(points: Polynomial) -> Polynomial:
    """Return `(m,)` the inverse of the product of each point's distances to the others."""
    return inverses(products_of_distances(points))


def _at(polynomial: Polynomial, point: "gmpy2.mpz") -> "gmpy2.mpz":
    value = gmpy2.mpz(0)
    for coefficient in reversed(polynomial):
        value = value * point + coefficient  # reduced at the end only: a point is one limb
    return value % PRIME


def _trimmed(polynomial: Polynomial) -> Polynomial:
    reduced = [coefficient % PRIME for coefficient in polynomial]
    while reduced and not reduced[-1]:
        reduced.pop()
    return reduced


def _minus(left: Polynomial, right: Polynomial) -> Polynomial:
    length = max(len(left), len(right))
    zero = gmpy2.mpz(0)
    padded = [[*coefficients, *[zero] * (length - len(coefficients))] for coefficients in (left, right)]
    return _trimmed([a - b for a, b in zip(*padded, strict=True)])


def _times(left: Polynomial, right: Polynomial) -> Polynomial:
    product = [gmpy2.mpz(0)] * max(0, len(left) + len(right) - 1)
    for shift, factor in enumerate(left):
        for position, coefficient in enumerate(right):
            product[shift + position] += factor * coefficient
    return _trimmed(product)


def _divided(dividend: Polynomial, divisor: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Divide by a non-zero polynomial; return quotient and remainder."""
    rest = list(dividend)
    inverse = gmpy2.invert(divisor[-1], PRIME)
    quotient = [gmpy2.mpz(0)] * max(0, len(dividend) - len(divisor) + 1)
    for shift in range(len(quotient) - 1, -1, -1):
        factor = quotient[shift] = rest[shift + len(divisor) - 1] * inverse % PRIME
        for position, coefficient in enumerate(divisor):
            rest[shift + position] = (rest[shift + position] - factor * coefficient) % PRIME
    return _trimmed(quotient), _trimmed(rest)


_ROWS = {MASK_KEY: "mask_keys", SELF_MASK: "self_masks"}


class UndecidedShares(RoundAborted):
    """Contradictory shares of some clients' secrets; ends the round unless the holders' proofs decide.

    Attributes:
        kind: of secret, `MASK_KEY` or `SELF_MASK`.
        dealers: the owners of the secrets.
    """

    def __init__(self, kind: int, dealers: Mapping[int, str]) -> None:
        client, why = next(iter(dealers.items()))
        super().__init__("wrong-shares", f"client {client}: {why}")
        self.kind = kind
        self.dealers = list(dealers)


@dataclass(frozen=True)
class Secrets:
    """Secrets that remove the masks that have not cancelled in the sum.

    Attributes:
        mask_keys: by client that has shared and is not in the sum.
        self_masks: by survivor, the seed of its own mask.
    """

    mask_keys: Mapping[int, PrivateKey]
    self_masks: Mapping[int, bytes]


async def recovered_secrets(state: "SecAggRound") -> Secrets:
    """Return the secrets that the survivors' sum requires; disputes about either kind are settled once.

    Raises:
        RoundAborted: a secret cannot be recovered.
    """
    for _ in (MASK_KEY, SELF_MASK):
        try:
            return recover_secrets(state)
        except UndecidedShares as undecided:
            await settle(state, undecided)
    return recover_secrets(state)


def recover_secrets(state: "SecAggRound") -> Secrets:
    """Recover the secrets from the revealed shares; record wrong shares.

    Raises:
        UndecidedShares: shares contradict each other.
        RoundAborted: too few of them.
    """
    t, survivors = state.graph.threshold, state.survivors.tolist()
    gone = [c for c in np.setdiff1d(state.shared, state.survivors).tolist() if state.graph.peers(c, survivors)]
    mask_keys = recover(t, gone, {c: answer.mask_keys for c, answer in state.revealed.items()})
    self_masks = recover(t, survivors, {c: answer.self_masks for c, answer in state.revealed.items()})
    for client, holder in mask_keys.wrong + self_masks.wrong:
        detail = f"unmask: wrong share of client {client}, dealt so by it or changed by client {holder}"
        state.misbehaved(holder, detail)
    for kind, recovered in ((MASK_KEY, mask_keys), (SELF_MASK, self_masks)):
        if recovered.undecided:
            raise UndecidedShares(kind, recovered.undecided)
    keys = {client: PrivateKey.from_seed(secret) for client, secret in mask_keys.secrets.items()}
    for client, key in keys.items():
        if key.public != state.adverts[client].mask_key:
            raise UndecidedShares(MASK_KEY, {client: "the shares give another key than the advertised one"})
    return Secrets(keys, self_masks.secrets)


async def settle(state: "SecAggRound", undecided: UndecidedShares) -> None:
    """Drop the shares of these dealers' secrets that their holders do not prove (`SecAggRound.revealed`).

    Args:
        state: of the round.
        undecided: the dispute.

    Raises:
        RoundAborted: a secret cannot be recovered; a dealer at fault is left out of later rounds.
    """
    name, kind = _ROWS[undecided.kind], undecided.kind
    revealed = state.revealed = dict(state.revealed)
    for dealer in undecided.dealers:
        rows = {h: row for h, answer in revealed.items() for row in getattr(answer, name) if row.client == dealer}
        holders = ids([holder for holder in rows if holder != dealer])
        replies = await state.start.network.ask(holders, ProveShare(state.start.number, dealer, kind))
        proven = _proven(state, dealer, kind, rows, replies)
        _judge(state, dealer, kind, proven)
        # If the proven shares are t or more and agree, the dealer was honest, and the round goes on without the others.
        for holder in rows.keys() - proven.keys():
            others = [row for row in getattr(revealed[holder], name) if row.client != dealer]
            revealed[holder] = msgspec.structs.replace(revealed[holder], **{name: others})


def _proven(
    state: "SecAggRound", dealer: int, kind: int, rows: Mapping[int, ShareOf], replies: "Replies"
) -> dict[int, ShareOf]:
    """Return the shares that their holders have proven; the dealer's own share counts without a proof."""
    proven = {holder: row for holder, row in rows.items() if holder == dealer}
    meter("aead.open", len(replies))
    for holder, answer in replies.valid().items():
        associated = associated_data(state.start.number, dealer, holder, state.digest)
        try:
            if open_share(answer.key, state.sealed[dealer][holder], kind, associated) != rows[holder].share:
                raise ProtocolError("another share was dealt")
        except ProtocolError as error:
            state.misbehaved(holder, f"unmask: changed its share of client {dealer}: {error}")
            continue
        proven[holder] = rows[holder]
    return proven


def _judge(state: "SecAggRound", dealer: int, kind: int, proven: Mapping[int, ShareOf]) -> None:
    """Leave the dealer out of later rounds if its proven shares show that it has dealt wrongly."""
    none = sum(not is_share(row.share) for row in proven.values())
    recovered = (
        Recovered()
        if none
        else recover(state.graph.threshold, [dealer], {holder: [row] for holder, row in proven.items()})
    )
    secret, fault = recovered.secrets.get(dealer), ""
    if none:
        fault = f"dealt what is no share, as {none} holders prove"
    elif secret is None or recovered.wrong:
        fault = f"dealt shares that belong to no secret, as {len(proven)} holders prove"
    elif kind == MASK_KEY and PrivateKey.from_seed(secret).public != state.adverts[dealer].mask_key:
        fault = f"dealt shares of another key than its own, as {len(proven)} holders prove"
    if not fault:
        return
    memory = state.start.memory
    # An honest dealer cannot be framed, so leave the dealer out for good: c dishonest clients end at most c rounds.
    memory[EXCLUDED] = np.union1d(memory.get(EXCLUDED, np.zeros(0, np.int64)), [dealer]).astype(np.int64)
    state.misbehaved(dealer, f"share keys: {fault}")
    detail = f"{fault}; it is left out of all later rounds"
    state.start.network.record_event(f"client:{dealer}", "excluded", detail)
    if secret is None or not recovered.wrong:
        raise RoundAborted("wrong-shares", f"client {dealer} {fault}, and is left out from now on")
