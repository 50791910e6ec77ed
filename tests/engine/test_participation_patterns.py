"""`min-separation` and `balls-in-bins` in whole federations: the clients' refusals and their memory."""

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.aggregation.dp_sgd_random_participation import GradientTrainer  # noqa: F401  (a kind of Trainer)
from testbed.engine.canaries import CanaryTrainer  # noqa: F401
from testbed.errors import ExperimentError, Refusal, RunError
from testbed.experiment.schema import validated
from testbed.parties.participation import OwnParticipation, ParticipationLog
from testbed.privacy.participation_pattern import ParticipationPattern
from testbed.training import Trainer
from tests.engine.federations import checks_by_round
from tests.messages_named import naming

SEPARATION, BINS, ROUNDS = 3, 4, 9
MIN_SEPARATION = {"protocol": "min-separation", "separation": SEPARATION, "participants": 6}
IN_BATCHES = MIN_SEPARATION | {"privacy": 3}
BY_SERVER = {"protocol": "balls-in-bins", "bins": BINS}
BY_CLIENTS = BY_SERVER | {"coins": "clients"}
ALL = {"min-separation": MIN_SEPARATION, "in batches": IN_BATCHES, "bins": BY_SERVER, "own bins": BY_CLIENTS}
UNSTEADY = {"availability": {"model": "bernoulli", "unavailable": 0.15, "dropout": {"rate": 0.1, "stage": "random"}}}
EARLY = {"reselect-early": {"victim": 2}}


def keys(selection: dict[str, Any], server: Any = None, **more: Any) -> dict[str, Any]:
    """Real secure aggregation; the server works alone."""
    given = {"selection": selection, "aggregation": {"protocol": "secagg", "threshold": 0.6}, "rounds": ROUNDS} | more
    return given if server is None else given | {"adversary": {"dishonest": 0, "server": server}}


def in_sums(run: Any, client: int) -> list[int]:
    """Return the rounds with the client's update in the sum."""
    return [number for number, outcome in enumerate(run.outcomes, 1) if client in outcome.survivors]


def outcome_bits(run: Any) -> str:
    tables = {table: run.rows(table) for table in ("rounds", "exchanges", "participation", "events")}
    tables["events"] = [event for event in tables["events"] if event["kind"] != "resume"]
    return json.dumps([tables, run.federation.state.model.tobytes().hex()], default=str)


@pytest.mark.parametrize("name", ALL)
def test_an_honest_server_is_never_refused(name: str, run: Callable) -> None:
    """Clients may be away, or drop out at any stage."""
    done = run(keys(ALL[name], **UNSTEADY), "here").rounds()
    assert not checks_by_round(done)
    assert sum(outcome.state == "completed" for outcome in done.outcomes) >= 4
    separation = BINS if "bins" in name else SEPARATION
    for client in range(30):
        rounds = in_sums(done, client)
        assert all(later - earlier >= separation for earlier, later in itertools.pairwise(rounds))
        assert "bins" not in name or len({number % BINS for number in rounds}) <= 1


@pytest.mark.parametrize("name", ALL)
def test_a_client_that_is_asked_before_its_turn_refuses_and_is_in_no_sum(name: str, run: Callable) -> None:
    done = run(keys(ALL[name], EARLY), "here").rounds()
    attacked = {event["round"] for event in done.rows("events") if event["kind"] == "attack"}
    checks = {"train.not-participating"} if name == "own bins" else {"train.too-early", "train.out-of-cycle"}
    seen = checks_by_round(done)
    assert len(attacked) >= 4
    assert attacked <= set(seen)
    assert {check for found in seen.values() for check, _ in found} <= checks
    for number, outcome in enumerate(done.outcomes, 1):
        assert number not in seen or (2 in outcome.participants and 2 not in outcome.survivors)
    rounds = in_sums(done, 2)
    assert rounds
    assert all(later - earlier >= SEPARATION for earlier, later in itertools.pairwise(rounds))


def test_without_the_clients_check_the_victim_is_in_every_sum(run: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.parties.participation.OwnParticipation.begin", lambda *given: None)
    done = run(keys(MIN_SEPARATION, EARLY)).rounds()
    assert in_sums(done, 2) == list(range(1, ROUNDS + 1))


def test_no_more_rounds_than_agreed_on(run: Callable) -> None:
    often = {"protocol": "min-separation", "separation": 2, "participants": 6, "max_participations": 2}
    done = run(keys(often, EARLY, rounds=8), "here").rounds()
    assert len(in_sums(done, 2)) == 2
    last = in_sums(done, 2)[-1]
    assert {check for number, found in checks_by_round(done).items() for check, _ in found if number > last + 1} == {
        "train.too-often"
    }


def test_a_client_that_was_put_into_another_bin_first_stays_there(run: Callable) -> None:
    """With the server's coins a client knows its bin by its first round; in the rounds of another it then refuses."""
    honest = run(keys(BY_SERVER)).rounds()
    own = in_sums(honest, 2)
    assert len(own) >= 2
    first = next(number for number in (1, 2) if number != own[0])
    section = {"dishonest": 0, "server": EARLY, "from_round": first, "every": ROUNDS}
    done = run(keys(BY_SERVER, rounds=12) | {"adversary": section}, "here").rounds()
    assert in_sums(done, 2) == [first]  # and the server does not ask it in the rounds of the new bin
    checks = {check for found in checks_by_round(done).values() for check, _ in found}
    assert checks <= {"train.too-early", "train.out-of-cycle"}
    assert "train.out-of-cycle" in checks


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("stops", [1, 4])
def test_a_resumed_run_equals_an_uninterrupted_one_also_in_the_clients_memory(
    name: str, stops: int, run: Callable
) -> None:
    given = keys(ALL[name], EARLY, **UNSTEADY)
    whole = run(given, "whole").rounds()
    run(given, "stopped").rounds(stops)
    resumed = run(given, "stopped", resume=True, hosts=3).rounds()
    assert outcome_bits(resumed) == outcome_bits(whole)
    assert len(resumed.outcomes) == ROUNDS - stops


def test_a_run_does_not_go_on_where_clients_have_forgotten(run: Callable, tmp_path: Path) -> None:
    """Else a server could have its host die, and their files with it."""
    given = keys(MIN_SEPARATION, "reselect-early")
    first = set(run(given, "kept").rounds(1).outcomes[0].participants.tolist())
    for name in ("lost", "changed", "cut"):
        shutil.copytree(tmp_path / "kept", tmp_path / name)
    (lost,), (changed,), (cut,) = ((tmp_path / name / "client-states").iterdir() for name in ("lost", "changed", "cut"))
    lost.unlink()
    changed.write_bytes(bytes([changed.read_bytes()[0] ^ 1]) + changed.read_bytes()[1:])
    cut.write_bytes(cut.read_bytes()[:24])
    kept = run(given, "kept", resume=True).rounds(1)
    assert checks_by_round(kept) == {2: {("train.too-early", "train")}}
    assert not first & set(kept.outcomes[0].survivors.tolist())
    parts = {"lost": ("0 rounds", "1 sums"), "changed": ("entry 1",), "cut": ("0 rounds",)}
    for name, named in parts.items():
        with pytest.raises(RunError, match=naming(name, "participation", *named)) as error:
            run(given, name, resume=True)
        assert "\n" not in str(error.value)


def test_numbers_that_run_ahead_count_also_after_the_host_has_died(tmp_path: Path) -> None:
    """A server may call its third round the ninth; a host that died there is told that two rounds are over."""

    def after_the_host_died(**pattern: Any) -> OwnParticipation:
        return OwnParticipation(ParticipationPattern(**pattern), ParticipationLog(tmp_path))

    ahead = after_the_host_died(min_separation=3)
    for number in (6, 9):
        ahead.begin(3, number)
    again = after_the_host_died(min_separation=3)
    again.begin(3, 9)  # the round under way is repeated
    for number in (4, 5, 7, 8, 10, 11):
        with pytest.raises(Refusal, match=naming("at least 3")):
            again.begin(3, number)
    with pytest.raises(Refusal, match=naming("2 times", "at most 2")):
        after_the_host_died(min_separation=3, max_participations=2).begin(3, 3)
    with pytest.raises(Refusal, match=naming("every 3 rounds")):
        after_the_host_died(min_separation=3, fixed_cycle=True).begin(3, 2)
    after_the_host_died(min_separation=3, fixed_cycle=True).begin(3, 3)
    assert ParticipationLog(tmp_path).rounds(3) == [3, 6, 9]


def test_without_a_seed_a_client_keeps_the_bin_that_it_has_thrown(run: Callable) -> None:
    given = keys(BY_CLIENTS, seed=None)
    done = run(given, "here", seed=11).rounds(BINS)
    resumed = run(given, "here", resume=True, seed=11).rounds(BINS)
    for before, after in zip(done.outcomes, resumed.outcomes, strict=True):
        assert before.participants.tolist() == after.participants.tolist()
    another = run(given, "another", seed=11).rounds(1)
    assert another.outcomes[0].participants.tolist() != done.outcomes[0].participants.tolist()


def test_the_log_survives_a_process_that_dies_in_the_middle_of_an_entry(tmp_path: Path) -> None:
    first = ParticipationLog(tmp_path)
    for client, number in ((3, 1), (4, 1), (3, 5), (3, 5)):
        first.trains(client, number)
    first.thrown(4, 2)
    first.sync()
    (file,) = (tmp_path / "client-states").iterdir()
    with file.open("ab") as opened:
        opened.write(b"\x07" * 11)
    second = ParticipationLog(tmp_path)
    assert second.rounds(3) == [1, 5]
    assert (second.bin(4), second.bin(3)) == (2, None)
    second.trains(4, 9)
    assert ParticipationLog(tmp_path).rounds(4) == [1, 9]
    assert len(list((tmp_path / "client-states").iterdir())) == 2


def test_a_log_that_cannot_be_written_or_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "client-states").write_text("a file")
    log = ParticipationLog(tmp_path)
    with pytest.raises(RunError, match=r"client-states: cannot write: .*rerun with --resume") as error:
        log.trains(0, 1)
    assert "\n" not in str(error.value)
    (tmp_path / "client-states").unlink()
    (tmp_path / "client-states" / "x.participation").mkdir(parents=True)
    with pytest.raises(RunError, match=naming("client-states")):
        ParticipationLog(tmp_path)


def test_every_honest_way_to_train_is_open_to_the_check() -> None:
    """No subclass overrides the check of whether a client may train in a round."""

    def below(kind: type[Trainer]) -> list[type[Trainer]]:
        return [kind, *itertools.chain.from_iterable(below(one) for one in kind.__subclasses__())]

    of_the_testbed = [kind for kind in below(Trainer) if kind.__module__.startswith("testbed.")]
    honest = [kind for kind in of_the_testbed if not kind.__module__.startswith("testbed.adversary")]
    assert len(honest) >= 3
    for kind in honest:
        assert kind.on_train is Trainer.on_train
        assert kind._check_round is Trainer._check_round


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"asynchronous": {"concurrency": 8}}, "selection.protocol: min-separation"),
        ({"selection": MIN_SEPARATION | {"separation": 6}}, "separation: 6 rounds of 6 participants need 36 clients"),
        ({"selection": MIN_SEPARATION | {"refine": {}}}, "selection.refine"),
        (
            {"aggregation": {"protocol": "dp-sgd-random-participation", "sample_rate": 0.5, "sigma": 1.0}},
            "dp-sgd-random-participation",
        ),
    ],
)
def test_incompatible_settings_give_one_error_line(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ExperimentError) as error:
        validated({"population": 30, **keys(MIN_SEPARATION), **more}, "mine.yaml")
    assert said in str(error.value)
    assert str(error.value).count("\n") == 0
