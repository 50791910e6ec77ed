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
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from testbed.aggregation.secagg.dealt_shares import MASK_KEY, SELF_MASK, ProveShare, associated_data, open_share
from testbed.aggregation.secagg.messages import ShareOf
from testbed.aggregation.secagg.share_correction import Recovered, is_share, recover
from testbed.crypto.key_agreement import PrivateKey
from testbed.emulation.compute.cost import meter
from testbed.errors import ProtocolError, RoundAborted
from testbed.network.contract import EXCLUDED, ids

if TYPE_CHECKING:
    from testbed.aggregation.secagg.round_state import SecAggRound
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


@dataclass(frozen=True)
class Secrets:
    """What removes the masks that have not cancelled in the sum.

    Attributes:
        mask_keys: of those that have shared, and are not in the sum.
        self_masks: seeds of the survivors' own masks.
    """

    mask_keys: Mapping[int, PrivateKey]
    self_masks: Mapping[int, bytes]


async def recovered_secrets(state: "SecAggRound") -> Secrets:
    """The secrets that the survivors' sum calls for; disputes about either kind are settled once.

    Raises `RoundAborted` when one of them cannot be had.
    """
    for _ in (MASK_KEY, SELF_MASK):
        try:
            return recover_secrets(state)
        except UndecidedShares as undecided:
            await settle(state, undecided)
    return recover_secrets(state)


def recover_secrets(state: "SecAggRound") -> Secrets:
    """The secrets, from the shares that were revealed; wrong shares are recorded.

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
        state.record("misbehaviour", holder, detail)
    for kind, found in ((MASK_KEY, mask_keys), (SELF_MASK, self_masks)):
        if found.undecided:
            raise UndecidedShares(kind, found.undecided)
    keys = {client: PrivateKey.from_seed(secret) for client, secret in mask_keys.secrets.items()}
    for client, key in keys.items():
        if key.public != state.adverts[client].mask_key:
            raise UndecidedShares(MASK_KEY, {client: "the shares give another key than its own"})
    return Secrets(keys, self_masks.secrets)


async def settle(state: "SecAggRound", undecided: UndecidedShares) -> None:
    """Drop the shares of these dealers' secrets that nobody proves (`SecAggRound.revealed`).

    Raises:
        RoundAborted: a secret cannot be had; its dealer is left out from now on if that is its fault.
    """
    name, kind = _ROWS[undecided.kind], undecided.kind
    kept = state.revealed = dict(state.revealed)
    for dealer in undecided.dealers:
        rows = {h: row for h, said in kept.items() for row in getattr(said, name) if row.client == dealer}
        asked = ids([holder for holder in rows if holder != dealer])
        replies = await state.start.network.ask(asked, ProveShare(state.start.number, dealer, kind))
        proven = _proven(state, dealer, kind, rows, replies)
        _judge(state, dealer, kind, proven)
        for holder in rows.keys() - proven.keys():
            others = [row for row in getattr(kept[holder], name) if row.client != dealer]
            kept[holder] = msgspec.structs.replace(kept[holder], **{name: others})


def _proven(
    state: "SecAggRound", dealer: int, kind: int, rows: Mapping[int, ShareOf], replies: "Replies"
) -> dict[int, ShareOf]:
    """The shares that their holders have shown to be what the dealer has sealed; the dealer's own is its word."""
    proven = {holder: row for holder, row in rows.items() if holder == dealer}
    meter("aead.open", len(replies))
    for holder, answer in replies.valid().items():
        associated = associated_data(state.start.number, dealer, holder, state.digest)
        try:
            if open_share(answer.key, state.sealed[dealer][holder], kind, associated) != rows[holder].share:
                raise ProtocolError("another share was dealt")
        except ProtocolError as error:
            state.record("misbehaviour", holder, f"unmask: changed its share of client {dealer}: {error}")
            continue
        proven[holder] = rows[holder]
    return proven


def _judge(state: "SecAggRound", dealer: int, kind: int, proven: Mapping[int, ShareOf]) -> None:
    """Leave the dealer out of later rounds where its proven shares show that it has not dealt as it should."""
    none = sum(not is_share(row.share) for row in proven.values())
    found = (
        Recovered()
        if none
        else recover(state.graph.threshold, [dealer], {holder: [row] for holder, row in proven.items()})
    )
    secret, fault = found.secrets.get(dealer), ""
    if none:
        fault = f"dealt what is no share, as {none} holders prove"
    elif secret is None or found.wrong:
        fault = f"dealt shares that belong to no secret, as {len(proven)} holders prove"
    elif kind == MASK_KEY and PrivateKey.from_seed(secret).public != state.adverts[dealer].mask_key:
        fault = f"dealt shares of another key than its own, as {len(proven)} holders prove"
    if not fault:
        return
    memory = state.start.memory
    memory[EXCLUDED] = np.union1d(memory.get(EXCLUDED, np.zeros(0, np.int64)), [dealer]).astype(np.int64)
    state.record("misbehaviour", dealer, f"share keys: {fault}")
    state.record("excluded", dealer, f"{fault}; it is left out of all later rounds")
    if secret is None or not found.wrong:
        raise RoundAborted("wrong-shares", f"client {dealer} {fault}, and is left out from now on")
