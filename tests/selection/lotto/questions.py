"""Questions to one client of Lotto, honest and dishonest, in any order, and the client's reactions."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from hashlib import sha256
from typing import Any

import msgspec
import numpy as np

from testbed.crypto import prf
from testbed.crypto.signatures import SigningKey
from testbed.emulation.compute.cost import REFERENCE_COSTS, ComputeModel
from testbed.messages import Message, detach
from testbed.network.hosts import Delivery
from testbed.parties.client import Environment
from testbed.parties.host import Host, LocalHosts
from testbed.parties.pki import PKI, Directory
from testbed.parties.round_beacon import RoundBeacon, randomness_of
from testbed.randomness import Randomness
from testbed.selection.contract import SelectionProtocol
from testbed.selection.lotto.messages import (
    LIST_DOMAIN,
    Announce,
    ListRegistration,
    ListSignatures,
    ParticipantEntry,
    ParticipantList,
    SignedBy,
    list_content,
    list_digest,
    selection_input,
)
from testbed.selection.lotto.variants import (
    ClientCentricParameters,
    ClientCentricServer,
    ServerCentricParameters,
    ServerCentricServer,
)
from testbed.selection.verifiable_batch_partition import (
    Prove,
    VerifiableBatchPartitionParameters,
    VerifiableBatchServer,
)

PROTOCOLS = tuple(
    f"{name}{beacon}"
    for name in ("client-centric", "server-centric", "verifiable-batches")
    for beacon in ("", ", beacon")
)
POPULATION, ROUNDS, ASKED, OTHER = 4, 3, 0, 1  # everybody is a candidate, and these two are the list
EXPERIMENT_ID = bytes(range(16))
BEACON_KEY = SigningKey.from_seed(bytes(range(32)))
TERMS: dict[str, Any] = {"participants": 2, "over_selection": 2.0}
_replaced = msgspec.structs.replace


def server_of(protocol: str) -> SelectionProtocol:
    """Return the server side, for its clients' roles and the parameters."""
    name, _, beacon = protocol.partition(", ")
    terms = TERMS | {"round_beacon": "public" if beacon else "none"}
    if name == "client-centric":
        return ClientCentricServer(ClientCentricParameters(**terms), POPULATION)
    if name == "server-centric":
        return ServerCentricServer(ServerCentricParameters(**terms), POPULATION)
    batches = VerifiableBatchPartitionParameters(**terms, privacy=2, beacon=None)
    return VerifiableBatchServer(batches, POPULATION)


@cache
def host_of(protocol: str) -> Host:
    """Return all clients, registered, on one host."""
    server = server_of(protocol)
    environment = Environment(
        population=POPULATION,
        randomness=Randomness(3),
        compute=ComputeModel(False, REFERENCE_COSTS),
        directory=Directory.empty(POPULATION),
        experiment_id=EXPERIMENT_ID,
        batches=server.batches,
        rounds=ROUNDS,
    )
    hosts = LocalHosts(POPULATION, environment, server.roles)
    hosts.register(PKI(POPULATION, Randomness(3)))
    environment.directory = replace(environment.directory, beacon=BEACON_KEY.public)
    return hosts.hosts[0]


@cache
def questions_of(protocol: str) -> Mapping[str, tuple[Message, int]]:
    """Return the possible questions by name, each with the announced round that the client then knows."""
    host, parameters = host_of(protocol), server_of(protocol).parameters
    announced, beacon = not protocol.startswith("server"), protocol.endswith("beacon")
    identities = {client: host.client(client).identity for client in (ASKED, OTHER)}
    directory = host.environment.directory

    def pulse(number: int) -> bytes | None:
        return RoundBeacon(BEACON_KEY, EXPERIMENT_ID).open(number) if beacon else None

    def entry(client: int, number: int) -> ParticipantEntry:
        opened = pulse(number)
        evaluated = selection_input(EXPERIMENT_ID, number, b"" if opened is None else randomness_of(opened))
        if not announced:
            output = prf.evaluate(directory.vrf_key(client), evaluated)
            return ParticipantEntry(client, directory.signing_key(client), output, b"")
        return ParticipantEntry(client, directory.signing_key(client), *identities[client].vrf.prove(evaluated))

    def content(message: ParticipantList) -> bytes:
        return list_content(EXPERIMENT_ID, parameters, message)

    def registered(message: ParticipantList) -> ParticipantList:
        if not beacon:
            return message
        board = RoundBeacon(BEACON_KEY, EXPERIMENT_ID)
        opened = board.open(message.round)
        receipt = board.register(message.round, list_digest(content(message)))
        return _replaced(message, beacon=ListRegistration(receipt, None if announced else opened))

    def listed(number: int, **changes: Any) -> ParticipantList:
        rows = [entry(client, number) for client in (ASKED, OTHER)]
        return registered(_replaced(ParticipantList(number, POPULATION, rows), **changes))

    def signed(number: int, of: ParticipantList, signers: tuple[int, ...] = (ASKED, OTHER)) -> ListSignatures:
        rows = [SignedBy(client, identities[client].signing.sign(LIST_DOMAIN, content(of))) for client in signers]
        return ListSignatures(number, rows)

    lists = {number: listed(number) for number in (1, 2)}
    invalid = _replaced(entry(OTHER, 1), output=entry(OTHER, 2).output)
    found: dict[str, tuple[Message, int]] = {
        "list 1": (lists[1], 0),
        "list 2": (lists[2], 0),
        "list 4": (listed(4), 0),
        "list 1, of another population": (listed(1, population=POPULATION + 1), 0),
        "list 1, with another's number": (listed(1, participants=[entry(ASKED, 1), invalid]), 0),
        "list 1, of one client twice": (listed(1, participants=[entry(OTHER, 1)] * 2), 0),
        "signatures 1": (signed(1, lists[1]), 0),
        "signatures 2": (signed(2, lists[2]), 0),
        "signatures 1, too few": (signed(1, lists[1], (OTHER,)), 0),
        "signatures 1, of another list": (signed(1, lists[2]), 0),
    }
    if announced:
        factor = parameters.factor

        def announce(number: int, population: int = POPULATION) -> Announce:
            return Announce(number, population, 2, factor.numerator, factor.denominator, pulse(number))

        found |= {
            "announce 1": (announce(1), 0),
            "announce 2": (announce(2), 1),
            "announce 3, after 1": (announce(3), 1),
            "announce 2, after 2": (announce(2), 2),
            "announce 1, to few": (announce(1, POPULATION - 1), 0),
        }
    if protocol.startswith("verifiable"):
        found |= {"prove 1": (Prove(1), 0), "prove 2": (Prove(2), 0)}
    return found


class AskedClient:
    """A client at the beginning of a run."""

    def __init__(self, protocol: str) -> None:
        self.questions = questions_of(protocol)
        self.host = host_of(protocol)
        self.host.begin_round()
        self.client = self.host.client(ASKED)
        self.client.last_round = self.client.last_announced = 0

    def ask(self, name: str) -> str:
        """Return the answer (a hash) or the refusal, the client's round, and whether it has agreed on a list."""
        message, last_announced = self.questions[name]
        told = detach(message)
        answers = self.host.deliver(
            Delivery(
                key=(1, 0),
                kind=type(message),
                header=told.header,
                vectors=told.vectors,
                recipients=np.array([ASKED]),
                last_announced=np.array([last_announced]),
            )
        )
        refused = [f"{one.check}: {one.detail}" for one in answers.refusals]
        says = refused[0] if refused else sha256(answers.headers[ASKED]).hexdigest()[:16]
        agreed = sorted(self.client.agreed_participants or {})
        return f"{says} | round {self.client.last_round}{f', agreed with {agreed}' if agreed else ''}"
