"""When a client's secret cannot be had from the revealed shares: whose fault is it?

Up to (m - t) / 2 wrong ones among m shares are found by decoding (`share_correction`). With more, either the dealer has
dealt shares that belong to no secret, or so many holders have changed theirs. The server asks the holders to prove what
they were dealt (`dealt_shares`), and then knows:

- A share that its holder does not prove is left out. If the others are t or more and agree, the dealer was honest, and
  the round goes on, however many holders have lied.
- Proven shares that do not agree, are too large for one, or give another key than the dealer has advertised, are the
  dealer's work for sure: an honest one cannot be framed, whatever all others do. Its secret is nowhere, and with its
  mask in the sum the round is lost. The dealer is left out of all later rounds: c dishonest clients can end c rounds
  that way, and no more.
- Fewer than t proven shares decide nothing: the round ends, and nobody is left out.

What a dealer has sealed so that it does not open is not disputed: a holder reveals nothing then, and cannot prove why.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from testbed.aggregation.contract import AggregationRound
from testbed.aggregation.secagg.dealt_shares import MASK_KEY, SELF_MASK, ProveShare, associated_data, open_share
from testbed.aggregation.secagg.messages import KeyAdvert, ShareOf, Shares
from testbed.aggregation.secagg.share_correction import Recovered, is_share, recover
from testbed.crypto.key_agreement import PrivateKey
from testbed.emulation.compute.cost import meter
from testbed.errors import ProtocolError, RoundAborted
from testbed.network.contract import ids
from testbed.network.exclusion import EXCLUDED

if TYPE_CHECKING:
    from testbed.network import Replies

_ROWS = {MASK_KEY: "mask_keys", SELF_MASK: "self_masks"}


class UndecidedShares(RoundAborted):
    """The shares of some clients' secrets contradict each other; it ends the round unless the holders' proofs decide.

    Attributes:
        kind: of secret, `MASK_KEY` or `SELF_MASK`.
        dealers: whose.
    """

    def __init__(self, kind: int, dealers: Mapping[int, str]) -> None:
        client, why = next(iter(dealers.items()))
        super().__init__("wrong-shares", f"client {client}: {why}")
        self.kind = kind
        self.dealers = list(dealers)


async def settled(
    round_: AggregationRound,
    t: int,
    digest: bytes,
    adverts: Mapping[int, KeyAdvert],
    bundles: Mapping[int, Mapping[int, bytes]],
    revealed: Mapping[int, Shares],
    undecided: UndecidedShares,
) -> dict[int, Shares]:
    """`revealed` without the shares of these dealers that nobody proves.

    Args:
        round_: where clients are asked, and what is found is recorded.
        t: the secret-sharing threshold.
        digest: what the clients have in common, which shares are sealed with.
        adverts: the dealers' keys.
        bundles: what each dealer has sealed for each holder.
        revealed: the shares, by holder.
        undecided: which dealers.

    Raises:
        RoundAborted: a secret cannot be had; its dealer is left out from now on if that is its fault.
    """
    name, kind = _ROWS[undecided.kind], undecided.kind
    kept = dict(revealed)
    for dealer in undecided.dealers:
        rows = {h: row for h, said in kept.items() for row in getattr(said, name) if row.client == dealer}
        asked = ids([holder for holder in rows if holder != dealer])
        replies = await round_.network.ask(asked, ProveShare(round_.number, dealer, kind))
        proven = _proven(round_, digest, dealer, kind, bundles[dealer], rows, replies)
        _judge(round_, t, dealer, kind, adverts[dealer], proven)
        for holder in rows.keys() - proven.keys():
            others = [row for row in getattr(kept[holder], name) if row.client != dealer]
            kept[holder] = msgspec.structs.replace(kept[holder], **{name: others})
    return kept


def _proven(
    round_: AggregationRound,
    digest: bytes,
    dealer: int,
    kind: int,
    sealed: Mapping[int, bytes],
    rows: Mapping[int, ShareOf],
    replies: "Replies",
) -> dict[int, ShareOf]:
    """The shares that their holders have shown to be what the dealer has sealed; the dealer's own is its word."""
    proven = {holder: row for holder, row in rows.items() if holder == dealer}
    meter("aead.open", len(replies))
    for holder, answer in replies.valid().items():
        associated = associated_data(round_.number, dealer, holder, digest)
        try:
            if open_share(answer.key, sealed[holder], kind, associated) != rows[holder].share:
                raise ProtocolError("another share was dealt")
        except ProtocolError as error:
            detail = f"unmask: changed its share of client {dealer}: {error}"
            round_.network.record_event(f"client:{holder}", "misbehaviour", detail)
            continue
        proven[holder] = rows[holder]
    return proven


def _judge(
    round_: AggregationRound, t: int, dealer: int, kind: int, advert: KeyAdvert, proven: Mapping[int, ShareOf]
) -> None:
    """Leave the dealer out of later rounds where its proven shares show that it has not dealt as it should."""
    none = sum(not is_share(row.share) for row in proven.values())
    found = Recovered() if none else recover(t, [dealer], {holder: [row] for holder, row in proven.items()})
    secret, fault = found.secrets.get(dealer), ""
    if none:
        fault = f"dealt what is no share, as {none} holders prove"
    elif secret is None or found.wrong:
        fault = f"dealt shares that belong to no secret, as {len(proven)} holders prove"
    elif kind == MASK_KEY and PrivateKey.from_seed(secret).public != advert.mask_key:
        fault = f"dealt shares of another key than its own, as {len(proven)} holders prove"
    if not fault:
        return
    excluded = np.union1d(round_.memory.get(EXCLUDED, np.zeros(0, np.int64)), [dealer]).astype(np.int64)
    round_.memory[EXCLUDED] = excluded
    round_.network.record_event(f"client:{dealer}", "misbehaviour", f"share keys: {fault}")
    round_.network.record_event(f"client:{dealer}", "excluded", f"{fault}; it is left out of all later rounds")
    if secret is None or not found.wrong:
        raise RoundAborted("wrong-shares", f"client {dealer} {fault}, and is left out from now on")
