"""Honest Lotto rounds: candidates, agreement of participants, and costs."""

import contextlib
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, chisquare

from testbed.crypto import prf, vrf
from testbed.crypto.sortition import under_threshold
from testbed.emulation.compute.cost import REFERENCE_COSTS
from testbed.errors import RoundAborted
from testbed.messages import encode
from testbed.network.contract import Timing
from testbed.network.exchanges import OUTCOMES
from testbed.selection.lotto.messages import Candidacy, below_threshold, selection_input
from testbed.selection.lotto.variants import (
    ClientCentricParameters,
    ClientCentricServer,
    ServerCentricParameters,
    ServerCentricServer,
)
from tests.selection.federations import Selecting

SUSPICIOUS = 1e-4
VARIANTS = [(ClientCentricServer, ClientCentricParameters), (ServerCentricServer, ServerCentricParameters)]


def lotto(variant: tuple[Any, Any], population: int, **parameters: Any) -> Any:
    """Return a server that stores the list it shows."""
    kind, section = variant

    class Watched(kind):  # type: ignore[misc,valid-type]
        shown: Any = None

        def list_for(self, participants: Any, message: Any) -> Any:
            self.shown = message
            return super().list_for(participants, message)

    return Watched(section(**parameters), population)


@pytest.mark.parametrize("variant", VARIANTS)
def test_honest_rounds_agree_on_s_participants_with_valid_numbers(variant: tuple) -> None:
    run = Selecting(lotto(variant, 60, participants=6, over_selection=3.0), 60)
    lists = []
    for number in (1, 2, 3, 4):
        chosen = run.select(number)
        message = run.protocol.shown
        lists.append(chosen.participants.tolist())
        assert not run.network.events
        assert [entry.client for entry in message.participants] == chosen.participants.tolist() == chosen.ready.tolist()
        assert len(chosen.participants) == 6 <= chosen.candidates
        evaluated = selection_input(bytes(range(16)), number)
        for entry in message.participants:
            key = run.environment.directory.vrf_key(entry.client)
            if entry.proof:
                assert vrf.verify(key, evaluated, entry.proof) == entry.output
            else:
                assert prf.evaluate(key, evaluated) == entry.output
            bits = 8 * len(entry.output)
            assert Fraction(int.from_bytes(entry.output, "big"), 1 << bits) < Fraction(3 * 6, 60)
            assert run.client(entry.client).agreed_participants.keys() == {row.client for row in message.participants}
        assert [(stage.stage, len(stage.clients)) for stage in run.network.exchanges] == [
            (run.protocol.stages[0], 60), ("lotto/participants", 6), ("lotto/signatures", 6)
        ]  # fmt: skip
    assert len({tuple(row) for row in lists}) == 4


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_candidates_are_exactly_those_below_the_threshold(variant: tuple) -> None:
    run = Selecting(lotto(variant, 80, participants=4, over_selection=1.5), 80)
    for number in (1, 2, 3):
        evaluated = selection_input(bytes(range(16)), number)
        below = 0
        for client in range(80):
            identity = run.client(client).identity
            output = (
                prf.evaluate(identity.vrf.public, evaluated) if "server" in run.protocol.parameters.protocol
                else identity.vrf.output(evaluated)
            )  # fmt: skip
            below += Fraction(int.from_bytes(output, "big"), 1 << 8 * len(output)) < Fraction(6, 80)
        try:
            assert run.select(number).candidates == below
        except RoundAborted:
            assert run.last.candidates == below < 4


def test_theorem_1_as_published_and_with_the_real_prf() -> None:
    """Pr[|C| >= s] = 1 - BinCDF(s-1; n, a s/n): the paper's two examples, and 1500 rounds of the PRF at n = 700."""
    assert binom.sf(10 - 1, 100, 1.3 * 10 / 100) == pytest.approx(0.852, abs=5e-4)
    expected = binom.sf(70 - 1, 700, 1.3 * 70 / 700)
    assert expected == pytest.approx(0.9937, abs=5e-5)

    keys = np.random.default_rng(2).integers(0, 256, (700, 32), dtype=np.uint8)
    parameters = ServerCentricParameters(participants=70)
    counts = np.array(
        [
            below_threshold(prf.evaluate_many(keys, selection_input(bytes(16), number)), parameters, 700).sum()
            for number in range(1500)
        ]
    )
    assert binomtest(int((counts >= 70).sum()), len(counts), expected).pvalue > SUSPICIOUS
    edges = np.array([-1, 80, 84, 87, 90, 93, 96, 100, 700])
    found = np.diff([(counts <= edge).sum() for edge in edges])
    probable = np.diff(binom.cdf(edges, 700, 0.13))
    assert chisquare(found, probable * len(counts)).pvalue > SUSPICIOUS


def test_verifiable_outputs_fall_below_the_threshold_at_the_same_rate() -> None:
    secrets = [vrf.SecretKey.from_seed(number.to_bytes(32, "big")) for number in range(60)]
    below = sum(
        under_threshold(secret.output(selection_input(bytes(16), number)), Fraction(13, 10), 6, 60)
        for secret in secrets
        for number in range(25)
    )
    assert binomtest(below, 60 * 25, 0.13).pvalue > SUSPICIOUS


def test_the_server_draws_the_participants_uniformly_from_the_candidates() -> None:
    class Round:
        generator = np.random.default_rng(5)

        def rng(self, purpose: str) -> np.random.Generator:
            return self.generator

    server = ServerCentricServer(ServerCentricParameters(participants=3), 50)
    candidates = np.array([4, 8, 15, 16, 23, 42])
    found = np.concatenate([server.choose(candidates, Round()) for _ in range(1000)])
    assert set(found.tolist()) == set(candidates.tolist())
    assert chisquare(np.bincount(found)[candidates]).pvalue > SUSPICIOUS


# -- the threshold ------------------------------------------------------------------------------------------------


@given(
    outputs=st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=20),
    participants=st.integers(1, 50),
    population=st.integers(1, 300),
    over_selection=st.sampled_from([1.0, 1.3, 1.1, 2.5, 1.0000001, 100.0]),
)
def test_the_array_comparison_equals_the_exact_one(
    outputs: list[bytes], participants: int, population: int, over_selection: float
) -> None:
    parameters = ServerCentricParameters(participants=participants, over_selection=over_selection)
    factor = Fraction(str(over_selection))
    exact = factor * participants * 2**256 / population
    # Numbers at and around the threshold, which random ones never meet.
    near = [max(0, min(2**256 - 1, int(exact) + step)) for step in (-1, 0, 1)]
    outputs = [*outputs, *(number.to_bytes(32, "big") for number in near)]
    rows = np.frombuffer(b"".join(outputs), np.uint8).reshape(-1, 32)
    found = below_threshold(rows, parameters, population)
    oracle = [int.from_bytes(output, "big") < exact for output in outputs]
    assert found.tolist() == oracle
    assert [under_threshold(output, factor, participants, population) for output in outputs] == oracle


def test_the_factor_is_the_written_decimal() -> None:
    assert ClientCentricParameters(over_selection=1.3).factor == Fraction(13, 10)
    assert ClientCentricParameters(over_selection=1.1).factor == Fraction(11, 10)


@pytest.mark.parametrize("over_selection", [1.3333333333333333, 99.99999999999999, 100.0])
def test_a_factor_with_all_the_digits_of_a_float_can_be_announced(over_selection: float) -> None:
    parameters = ClientCentricParameters(participants=3, over_selection=over_selection)
    run = Selecting(ClientCentricServer(parameters, 6), 6)
    with contextlib.suppress(RoundAborted):  # too few candidates
        run.select()
    assert not run.network.events
    assert run.last.candidates > 0


def test_with_a_threshold_above_all_numbers_every_client_is_a_candidate() -> None:
    for variant in VARIANTS:
        chosen = Selecting(lotto(variant, 8, participants=6, over_selection=2.0), 8).select()
        assert chosen.candidates == 8
        assert len(chosen.participants) == 6


# -- rounds that end early ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_too_few_candidates_abort_the_round(variant: tuple) -> None:
    run = Selecting(lotto(variant, 40, participants=10, over_selection=1.0), 40)
    aborted = []
    for number in range(1, 8):
        try:
            run.select(number)
        except RoundAborted as end:
            aborted.append((end, run.last, run.network.exchanges))
    assert aborted
    for error, last, exchanges in aborted:
        assert error.reason == "too-few-candidates"
        assert error.detail == f"{last.candidates} candidate{'s' * (last.candidates != 1)}, 10 wanted"
        assert 0 < last.candidates < 10
        assert len(last.participants) == 0
        assert len(exchanges) == 1  # the stage has taken time and bytes
        assert exchanges[0].bytes_down.sum() > 0


def test_silent_clients_cost_the_deadline_and_acknowledgements_cost_messages() -> None:
    def first_stage(unselected: str) -> tuple[Any, float]:
        parameters = ClientCentricParameters(participants=4, over_selection=2.0, unselected=unselected)
        run = Selecting(ClientCentricServer(parameters, 50), 50, timing=Timing(30.0))
        chosen = run.select()
        stage = run.network.exchanges[0]
        return (chosen, stage), run.network.exchanges[1].sent_s - stage.sent_s

    (silent, quiet), silent_s = first_stage("silent")
    (noisy, answered), acknowledged_s = first_stage("acknowledge")
    assert silent.participants.tolist() == noisy.participants.tolist()
    assert silent.candidates == noisy.candidates < 50

    assert silent_s == pytest.approx(30, abs=0.05)  # the deadline, and the server's computation after it
    assert acknowledged_s < 1
    small = len(encode(Candidacy()))
    assert small == 3
    assert (answered.bytes_up[answered.bytes_up < 100] == small).sum() == 50 - noisy.candidates
    assert answered.bytes_up.sum() - quiet.bytes_up.sum() == small * (50 - noisy.candidates)
    assert [OUTCOMES[code] for code in np.unique(quiet.outcome)] == ["answered", "silent"]
    assert (answered.outcome == OUTCOMES.index("answered")).all()


def test_a_server_without_verification_selects_the_same_participants() -> None:
    def selected(server_verifies: str) -> tuple[Any, float]:
        parameters = ClientCentricParameters(participants=4, over_selection=2.0, server_verifies=server_verifies)
        run = Selecting(ClientCentricServer(parameters, 50), 50)
        chosen = run.select()
        announced, shown = run.network.exchanges[:2]
        return chosen, shown.sent_s - announced.sent_s

    (checked, longer_s), (unchecked, shorter_s) = selected("all"), selected("none")
    assert checked.participants.tolist() == unchecked.participants.tolist()
    assert checked.candidates == unchecked.candidates > 4
    assert longer_s - shorter_s == pytest.approx(checked.candidates * REFERENCE_COSTS["vrf.verify"])


# -- dropouts -----------------------------------------------------------------------------------------------


def test_a_quorum_tolerates_dropouts_and_strict_signatures_do_not() -> None:
    lost = {"dropout": {"rate": [0, 0, 0, 0, 1], "stage": "lotto/participants"}}  # every fifth client

    def run_with(signatures: Any) -> Any:
        parameters = ServerCentricParameters(participants=10, over_selection=2.0, signatures=signatures)
        return Selecting(ServerCentricServer(parameters, 50), 50, availability=lost, timing=Timing(5.0))

    strict = run_with("strict")
    with pytest.raises(RoundAborted) as aborted:
        strict.select()
    participants = strict.last.participants
    signing = participants[participants % 5 != 4]
    assert aborted.value.reason == "too-few-signatures"
    assert aborted.value.detail == f"{len(signing)} of 10 needed"
    assert 0 < len(signing) < 10

    quorum = run_with(len(signing))
    chosen = quorum.select()
    assert chosen.participants.tolist() == participants.tolist()  # the agreed list does not change
    assert chosen.ready.tolist() == signing.tolist()
    for client in signing.tolist():
        assert sorted(quorum.client(client).agreed_participants) == participants.tolist()
    with pytest.raises(RoundAborted, match="too-few-signatures"):
        run_with(len(signing) + 1).select()


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"min_population": 101}, "n_min = 101 of a population of 100"),
        ({"signatures": 11}, "11 of 10 participants"),
        ({"participants": 101}, "101 of a population of 100"),
    ],
)
def test_unsuitable_parameters_are_refused(keys: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ClientCentricParameters(**keys).check(100)


@pytest.mark.parametrize("keys", [{}, {"min_population": 100}, {"signatures": 10}, {"participants": 100}])
def test_limiting_parameters_are_accepted(keys: dict) -> None:
    ClientCentricParameters(**keys).check(100)


# -- modelled cost ------------------------------------------------------------------------------------------


def test_modelled_compute_counts_every_operation_once() -> None:
    """s = 6 of n = 40: the operations of each party at each stage, as in Table 1 of the paper."""
    s, n, cost = 6, 40, REFERENCE_COSTS
    run = Selecting(lotto(VARIANTS[0], n, participants=s, over_selection=3.0), n)
    run.select()
    announce, shown, signed = run.network.exchanges
    proved = announce.bytes_up > 100
    assert s <= proved.sum() < n
    assert announce.compute_s == pytest.approx(cost["vrf.output"] + proved * cost["vrf.prove"])
    assert shown.compute_s == pytest.approx(np.full(s, (s - 1) * cost["vrf.verify"] + cost["ed25519.sign"]))
    assert signed.compute_s == pytest.approx(np.full(s, s * cost["ed25519.verify"]))
    verified = proved.sum() * cost["vrf.verify"] + s * cost["ed25519.verify"]
    assert run.network.server_compute_s == pytest.approx(verified + 2 * s * cost["message"])
    assert (shown.pki_bytes_down > s * 64).all()
    assert not announce.pki_bytes_down.any()
    assert not signed.pki_bytes_down.any()

    run = Selecting(lotto(VARIANTS[1], n, participants=s, over_selection=3.0), n)
    run.select()
    present, shown, signed = run.network.exchanges
    assert not present.compute_s.any()
    assert shown.compute_s == pytest.approx(np.full(s, s * cost["hmac"] + cost["ed25519.sign"]))
    assert signed.compute_s == pytest.approx(np.full(s, s * cost["ed25519.verify"]))
    recomputed = n * cost["hmac"] + s * cost["ed25519.verify"]
    assert run.network.server_compute_s == pytest.approx(recomputed + 2 * s * cost["message"])
