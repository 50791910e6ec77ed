"""Verifiable batch partition: candidate batches, agreement of participants, and refusals by code."""

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from hashlib import sha512
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy.stats import binomtest, chisquare

from testbed.batches import Batches
from testbed.crypto import signatures, vrf
from testbed.errors import Refusal, RoundAborted
from testbed.network.exchanges import OUTCOMES
from testbed.selection.lotto.messages import Announce, ParticipantEntry, ParticipantList, selection_input
from testbed.selection.verifiable_batch_partition import (
    VALUE_DOMAIN,
    Prove,
    VerifiableBatchPartitionParameters,
    VerifiableBatchServer,
    assign_batches,
    candidate_batches,
)
from tests.selection.federations import Selecting, refused_round

EXPERIMENT_ID = bytes(range(16))
SUSPICIOUS = 1e-4
replaced = msgspec.structs.replace


def parameters(**keys: Any) -> VerifiableBatchPartitionParameters:
    return VerifiableBatchPartitionParameters(**({"participants": 6, "privacy": 3, "over_selection": 3.0} | keys))


def server(population: int = 36, decisions: dict[str, Any] | None = None, **keys: Any) -> Any:
    """Return a server with some decisions overridden; it stores the list that it shows."""
    return type("Server", (VerifiableBatchServer,), decisions or {})(parameters(**keys), population)


def values_of(run: Any, number: int) -> dict[int, Fraction]:
    """Return every batch's value in [0, 1), computed from the members' keys."""
    evaluated = selection_input(EXPERIMENT_ID, number)
    found = {}
    batches = run.protocol.batches
    for batch in range(len(batches)):
        hashed = sha512(VALUE_DOMAIN + EXPERIMENT_ID + number.to_bytes(8, "big"))
        for client in batches.members([batch]).tolist():
            hashed.update(run.client(client).identity.vrf.output(evaluated))
        found[batch] = Fraction(int.from_bytes(hashed.digest(), "big"), 2**512)
    return found


# -- honest parties -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("population", [36, 38])  # 38: two batches of four
def test_honest_rounds_take_whole_candidate_batches(population: int) -> None:
    shown = []

    def list_for(self: Any, participants: Any, message: ParticipantList) -> Any:
        shown.append(message)
        return [(participants, message)]

    run = Selecting(server(population, {"list_for": list_for}), population)
    batches = run.protocol.batches
    seen = set()
    for number in range(1, 6):
        below = {batch for batch, value in values_of(run, number).items() if value < Fraction(18, population)}
        if len(below) < 2:
            with pytest.raises(RoundAborted, match=f"{len(below)} candidate batches, 2 wanted"):
                run.select(number)
            continue
        chosen = run.select(number)
        assert not run.network.events
        taken = batches.whole(chosen.participants)
        assert len(taken) == 2
        assert not len(batches.broken(chosen.participants))
        assert set(taken.tolist()) <= below
        assert chosen.candidates == sum(batches.sizes[list(below)])
        assert chosen.ready.tolist() == chosen.participants.tolist()
        assert 6 <= len(chosen.participants) <= run.protocol.maximum_participants
        for entry in shown[-1].participants:
            proven = vrf.verify(run.environment.directory.vrf_key(entry.client), selection_input(EXPERIMENT_ID, number),
                                entry.proof)  # fmt: skip
            assert proven == entry.output
            assert run.client(entry.client).agreed_participants.keys() == set(chosen.participants.tolist())
        asked = [(stage.stage, len(stage.clients)) for stage in run.network.exchanges]
        s = len(chosen.participants)
        assert asked == [
            ("lotto/announce", population), ("lotto/prove", chosen.candidates),
            ("lotto/participants", s), ("lotto/signatures", s),
        ]  # fmt: skip
        seen.add(tuple(taken.tolist()))
    assert len(seen) >= 3


def test_batch_values_fall_below_the_threshold_at_the_expected_rate() -> None:
    """Real VRF outputs, whole batches of three: 30 batches, 40 rounds, a K/n = 0.2."""
    terms, batches = parameters(over_selection=3.0), Batches.consecutive(90, 3)
    secrets = [vrf.SecretKey.from_seed(number.to_bytes(32, "big")) for number in range(90)]
    often = np.zeros(len(batches), np.int64)
    for number in range(1, 41):
        evaluated = selection_input(bytes(16), number)
        outputs = {client: secret.output(evaluated) for client, secret in enumerate(secrets)}
        often[candidate_batches(terms, batches, outputs, bytes(16), number, 90)] += 1
    assert binomtest(int(often.sum()), 30 * 40, 18 / 90).pvalue > SUSPICIOUS
    assert chisquare(often).pvalue > SUSPICIOUS


def test_with_a_k_equal_to_n_every_whole_batch_is_a_candidate_and_draws_are_uniform() -> None:
    run = Selecting(server(12, over_selection=2.0), 12)
    assert run.select().candidates == 12

    class Round:
        generator = np.random.default_rng(5)

        def rng(self, purpose: str) -> np.random.Generator:
            return self.generator

    found = np.concatenate([run.protocol.choose(np.array([0, 1, 3]), Round()) for _ in range(900)])
    assert set(found.tolist()) == {0, 1, 3}
    assert chisquare(np.bincount(found)[[0, 1, 3]]).pvalue > SUSPICIOUS


def test_the_assignment_depends_only_on_the_beacon() -> None:
    one, again, other = (assign_batches(1000, 7, beacon) for beacon in ("a", "a", "b"))
    assert one.of.tolist() == again.of.tolist() != other.of.tolist()
    assert np.array_equal(one.sizes, Batches.consecutive(1000, 7).sizes)
    assert assign_batches(1000, 7, None).of.tolist() == sorted(one.of.tolist())
    # Neighbours in the numbering are no more often together than others: 857 of 999 pairs would be, were they cut.
    assert binomtest(int((one.of[1:] == one.of[:-1]).sum()), 999, 6 / 999).pvalue > SUSPICIOUS


def test_a_batch_with_unavailable_members_is_no_candidate() -> None:
    run = Selecting(server(60, over_selection=10.0), 60, availability={"model": "bernoulli", "unavailable": 0.1})
    for number in (1, 2, 3):
        chosen = run.select(number)
        stage = run.network.exchanges[0]
        there = stage.clients[stage.outcome == OUTCOMES.index("answered")]
        assert 0 < len(there) < 60
        whole = run.protocol.batches.whole(there)
        assert chosen.candidates == 3 * len(whole)
        assert set(run.protocol.batches.whole(chosen.participants).tolist()) <= set(whole.tolist())


def test_all_clients_send_short_numbers_and_only_candidates_send_proofs() -> None:
    """67 bytes from all clients; the 80 bytes of a proof only from members of candidate batches."""
    run = Selecting(server(120, over_selection=4.0), 120)
    chosen = run.select(2)
    announced, asked = run.network.exchanges[:2]
    assert set(announced.bytes_up.tolist()) == {68}
    assert set(asked.bytes_up.tolist()) == {84}
    assert len(asked.clients) == chosen.candidates < 60


def test_too_few_candidate_batches_abort_the_round() -> None:
    run = Selecting(server(36, over_selection=1.0, participants=12), 36)
    aborted = 0
    for number in range(1, 9):
        standing = [b for b, value in values_of(run, number).items() if value < Fraction(12, 36)]
        if len(standing) >= 4:
            run.select(number)
            continue
        with pytest.raises(RoundAborted) as end:
            run.select(number)
        aborted += 1
        assert end.value.reason == "too-few-candidate-batches"
        assert end.value.detail == f"{len(standing)} candidate batches, 4 wanted"
        assert run.last.candidates == 3 * len(standing)
        assert len(run.network.exchanges) == 1  # no client has proven its number
    assert aborted


def test_a_quorum_tolerates_a_dropout_after_the_list() -> None:
    """A dropout after the list is fatal if all must sign, but not for a quorum; its batch is known."""
    for quorum, ends in (("strict", True), (5, False)):
        run = Selecting(server(12, over_selection=2.0, signatures=quorum), 12)
        lost = int(run.select(1).participants[0])
        batch = int(run.protocol.batches.of[lost])
        run.protocol.choose = lambda *_, b=batch: np.sort([b, (b + 1) % 4])  # it takes part in the next round, too
        run.client(lost).identity.signing = signatures.SigningKey.from_seed(
            bytes(32)
        )  # its signature is invalid for all
        if ends:
            with pytest.raises(RoundAborted):
                run.select(2)
        else:
            chosen = run.select(2)
            assert lost in chosen.participants
            assert lost not in chosen.ready


# -- refusals of honest clients -------------------------------------------------------------------------------------


def showing(alter: Callable[[Any, ParticipantList], ParticipantList], **keys: Any) -> Any:
    """Return a server that shows all participants an altered list."""

    def list_for(self: Any, participants: Any, message: ParticipantList) -> Any:
        return [(participants, alter(self, message))]

    return server(decisions={"list_for": list_for}, **({"over_selection": 6.0} | keys))


def with_rows(message: ParticipantList, rows: Sequence[ParticipantEntry]) -> ParticipantList:
    return replaced(message, participants=list(rows))


def all_rows(self: Any, message: ParticipantList, batch_index: int) -> list[ParticipantEntry]:
    """Return the rows of the first or the last batch of the list."""
    taken = np.unique(self.batches.of[[entry.client for entry in message.participants]])
    return [entry for entry in message.participants if self.batches.of[entry.client] == taken[batch_index]]


def others(clients: Sequence[int], own: str, check: str) -> dict[int, str]:
    """Return refusals: the first client with `own`, the others with `check`."""
    return {client: own if client == clients[0] else check for client in clients}


def first_row(**changes: Callable[[Any], Any]) -> Callable:
    def alter(self: Any, message: ParticipantList) -> ParticipantList:
        first, *rest = message.participants
        return with_rows(message, [replaced(first, **{key: of(first) for key, of in changes.items()}), *rest])

    return alter


def flipped(value: bytes) -> bytes:
    return value[:40] + bytes([value[40] ^ 1]) + value[41:]


FOREIGN_KEY = signatures.SigningKey.from_seed(bytes(32)).public
ALTERED = {
    "a member is left out": (lambda self, m: with_rows(m, m.participants[:-1]), "lotto.partial-batch"),
    "a batch is left out": (lambda self, m: with_rows(m, all_rows(self, m, 0)), "lotto.wrong-size"),
    "nobody": (lambda self, m: with_rows(m, []), "lotto.wrong-size"),
    "a client twice": (lambda self, m: with_rows(m, [m.participants[0], *m.participants]), "lotto.duplicate-client"),
    "a batch twice": (lambda self, m: with_rows(m, all_rows(self, m, 0) * 2), "lotto.duplicate-client"),
    "a stranger": (
        lambda self, m: with_rows(m, [*m.participants, replaced(m.participants[0], client=36)]), "pki.unknown-client"
    ),
    "another population": (lambda self, m: replaced(m, population=37), "lotto.population-mismatch"),
    "another round": (lambda self, m: replaced(m, round=m.round + 1), "lotto.unannounced-round"),
}  # fmt: skip


@pytest.mark.parametrize("name", ALTERED)
def test_all_participants_refuse_a_list_that_is_not_k_whole_batches(name: str) -> None:
    alter, check = ALTERED[name]
    participants, refusals, _ = refused_round(Selecting(showing(alter), 36))
    assert refusals == dict.fromkeys(participants, check)


CHANGED = [
    ("registration_key", lambda entry: FOREIGN_KEY, "lotto.registration-key-mismatch"),
    ("proof", lambda entry: flipped(entry.proof), "lotto.invalid-proof"),
    ("proof", lambda entry: bytes(80), "lotto.invalid-proof"),
    ("proof", lambda entry: b"", "lotto.invalid-proof"),
    ("output", lambda entry: entry.output[:63], "lotto.above-threshold"),
]


@pytest.mark.parametrize(("key", "change", "check"), CHANGED)
def test_a_changed_row_is_refused(key: str, change: Callable, check: str) -> None:
    participants, refusals, _ = refused_round(Selecting(showing(first_row(**{key: change})), 36))
    assert refusals == others(participants, "lotto.own-entry-mismatch", check)


def test_a_forged_number_changes_the_value_or_contradicts_the_proof() -> None:
    """If every batch is a candidate (a K = n) only the proof prevents it; otherwise mostly the threshold."""
    participants, refusals, _ = refused_round(Selecting(showing(first_row(output=lambda entry: bytes(64))), 36))
    assert refusals == others(participants, "lotto.own-entry-mismatch", "lotto.output-mismatch")
    run = Selecting(showing(first_row(output=lambda entry: bytes(64)), over_selection=2.0), 36)
    for number in range(1, 20):
        try:
            run.select(number)
        except RoundAborted as end:
            if end.reason == "refused" and set(run.refusals().values()) > {"lotto.above-threshold"}:
                break
    assert set(run.refusals().values()) == {"lotto.own-entry-mismatch", "lotto.above-threshold"}


def test_a_batch_over_the_threshold_is_refused() -> None:
    """All its members prove their numbers, but the batch was not drawn."""
    decisions = {"standing": lambda self, outputs, round_: np.arange(len(self.batches))}
    seen = set()
    for number in (1, 2, 3):
        _, refusals, _ = refused_round(Selecting(server(36, decisions, over_selection=1.0), 36), number)
        seen |= set(refusals.values())
    assert seen == {"lotto.above-threshold"}


def test_the_order_of_rows_does_not_change_a_batchs_value() -> None:
    """A server that reverses the rows changes no value: no client refuses, all sign their list."""
    signed: list[Any] = []

    def valid_signatures(self: Any, answers: Any, message: Any, round_: Any) -> Any:
        signed.extend(answers)
        return []

    kind = showing(lambda self, m: with_rows(m, m.participants[::-1]), over_selection=3.0)
    type(kind).valid_signatures = valid_signatures
    run = Selecting(kind, 36)
    with pytest.raises(RoundAborted, match="too-few-signatures"):
        run.select()
    assert len(signed) == 6
    assert not run.refusals()


def test_announcements_and_proofs_out_of_turn_are_refused() -> None:
    run = Selecting(server(), 36)
    role = run.protocol.roles[0]
    announced = Announce(1, 36, 6, 3, 1)

    def fresh(client: int) -> Any:
        return role.role(run.client(client), role.parameters)

    def check(call: Callable) -> str:
        with pytest.raises(Refusal) as refusal:
            call()
        return str(refusal.value.check)

    one = fresh(0)
    assert check(lambda: one.on_prove(Prove(1))) == "lotto.unannounced-round"
    assert one.on_announce(announced).proof is None
    assert check(lambda: one.on_prove(Prove(2))) == "lotto.unannounced-round"
    assert check(lambda: one.on_announce(announced)) == "lotto.round-reused"
    changed = [{"population": 35}, {"participants": 9}, {"factor_numerator": 4}]
    names = [check(lambda c=c, change=change: fresh(c).on_announce(replaced(announced, **change)))
             for c, change in enumerate(changed, 1)]  # fmt: skip
    assert names == ["lotto.population-below-minimum", "lotto.parameters-mismatch", "lotto.parameters-mismatch"]


# -- parameters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "population", "says"),
    [
        ({"privacy": 4}, 36, "privacy: T = 4 does not divide participants K = 6; allowed here: 1, 2, 3, 6"),
        ({}, 5, "participants: 6 of a population of 5; at most 5"),
        ({"over_selection": 7.0}, 36, "over_selection: a = 7 with K = 6 of 36 clients makes a K/n exceed 1; at most 6"),
        ({"min_population": 37}, 36, "min_population: n_min = 37 of a population of 36; at most 36"),
        ({"signatures": 7}, 36, "signatures: 7 of 6 participants; at most all"),
    ],
)
def test_errors_of_unsuitable_parameters_are_one_line(keys: dict[str, Any], population: int, says: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(says)}$"):
        parameters(**keys).check(population)


def test_the_signed_content_contains_the_partition() -> None:
    signed = {parameters(**keys).terms for keys in ({}, {"privacy": 2}, {"beacon": "b"}, {"beacon": None})}
    assert len(signed) == 4
