"""What came in at a live stage, in the form in which hosts on the virtual clock hand it over."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.arrays import Ids
from testbed.crashes import Crash
from testbed.emulation.compute.cost import meter
from testbed.errors import ProtocolError, Refusal, RoundAborted
from testbed.messages import Message, RefusalNotice, Vector, decode, detach
from testbed.network.hosts import ClientRefusal, HostAnswers
from testbed.network.live.exchange import Exchange
from testbed.network.live.frames import ANSWERED, CRASHED, REFUSED
from testbed.parties.sums import combined, float_total, ring_total

MALFORMED = b""  # decodes as nothing


def collected(kind: type[Message], exchanges: list[Exchange]) -> tuple[HostAnswers, dict[int, Vector]]:
    """The answers of a stage whose question is a `kind`, decoded, and the vectors that came with them.

    What a client says about its work is noted as soon as it is known, also when its answer is late. A complete
    answer that does not decode stands in `headers` as bytes that do not decode either.
    """
    heard = [exchange for exchange in exchanges if exchange.header is not None]
    headers = [exchange.header for exchange in heard if exchange.header is not None]
    spoke = [header.status in (ANSWERED, REFUSED) for header in headers]
    answers = HostAnswers(
        clients=np.array([exchange.client for exchange in heard], np.int64),
        answered=np.array(spoke, np.bool_),
        sizes=np.array([header.length * said for header, said in zip(headers, spoke, strict=True)], np.int64),
        compute_s=np.array([header.compute_s for header in headers], np.float64),
        pki_up=np.array([header.pki_up for header in headers], np.int64),
        pki_down=np.array([header.pki_down for header in headers], np.int64),
    )
    vectors: dict[int, Vector] = {}
    for exchange, header in zip(heard, headers, strict=True):
        if exchange.body is None:
            continue
        client, body = exchange.client, bytes(exchange.body)
        exchange.body = None  # the vectors hold what is needed
        if header.status == CRASHED:
            answers.crashes.append(Crash.decoded(client, body))
        elif header.status == REFUSED:
            answers.headers[client] = body
            answers.refusals.append(_refusal(client, body))
        elif header.status == ANSWERED:
            answers.headers[client] = _detached(kind, body, client, vectors)
    return answers, vectors


def _detached(kind: type[Message], body: bytes, client: int, vectors: dict[int, Vector]) -> bytes:
    assert kind.Answer is not None
    try:
        detached = detach(decode(kind.Answer, body))
    except ProtocolError:
        return MALFORMED
    if detached.vectors:
        vectors[client] = detached.vectors[0]
    return detached.header


def _refusal(client: int, body: bytes) -> ClientRefusal:
    try:
        notice = decode(RefusalNotice, body)
    except ProtocolError:
        return ClientRefusal(client, "message.malformed", "a refusal that does not decode")
    return ClientRefusal(client, notice.check, notice.detail)


def summed(vectors: Mapping[int, Vector], clients: Ids, weights: npt.NDArray[np.int64] | None) -> npt.NDArray[Any]:
    """`(d,)` sum of the clients' vectors: ring elements, or float64 of float vectors times `(m,)` `weights`.

    The same bits as `Hosts.total`, and metered in the same way. Raises `Refusal` when there is nobody to sum over,
    `RoundAborted` when somebody has sent no vector, or one of another shape.
    """
    if not len(clients):
        raise Refusal("sum.empty", "there is nobody to sum over")
    without = [client for client in clients.tolist() if client not in vectors]
    if without:
        raise RoundAborted("no-vector", f"client {without[0]} was to send a vector")
    chosen = [vectors[client] for client in clients.tolist()]
    bits, length = chosen[0].bits, len(chosen[0])
    if any((vector.bits, len(vector)) != (bits, length) for vector in chosen):
        raise RoundAborted("different-vectors", "clients sent vectors of different shapes")
    meter("ring.add.element" if weights is None else "float.add.element", float(len(chosen) * length))
    if bits:
        return combined([ring_total(chosen)], bits)
    shares = np.ones(len(chosen), np.int64) if weights is None else weights
    return combined([float_total(chosen, shares.tolist())], bits)
