"""Runs without a seed, killed while a round's sum is being released: a sum released twice is charged twice."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.errors import RunError
from testbed.records import RunDirectory, attempts, uploads
from testbed.records.tables import stopped
from testbed.selection.contract import Selection, SelectionRound
from testbed.selection.random_selection import RandomSelection
from tests.messages_named import naming

NOISE = {"noise_multiplier": 3.0}
KEYS: dict[str, Any] = {
    "seed": None,
    "rounds": 4,
    "selection": {"participants": 5},
    "aggregation": {"protocol": "secagg", "threshold": 4, "weights": "equal", "noise": NOISE},
}


class Killed(BaseException):
    """The process is gone."""


class Renumbers(RandomSelection):
    """Announces another round than the next one, as ``skip-rounds`` does."""

    async def select(self, round_: SelectionRound) -> Selection:
        announced = replace(round_, number=round_.number + 3)
        return replace(await super().select(announced), round_number=announced.number)


@pytest.fixture
def killed(run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that runs until the process dies before recording a round, several times in a row."""

    def killed(keys: dict[str, Any], name: str, at_round: int, times: int) -> None:
        append = RunDirectory.append_round

        def dies(records: RunDirectory, tables: Any, checkpoint: Any, aggregate: Any = None) -> None:
            if checkpoint.round_number == at_round:
                raise Killed
            append(records, tables, checkpoint, aggregate)

        with monkeypatch.context() as patched:
            patched.setattr(RunDirectory, "append_round", dies)
            for time in range(times):
                with pytest.raises(Killed):
                    run(keys, name, resume=time > 0, seed=1).rounds()

    return killed


def took_part(done: Any, number: int) -> list[int]:
    return [row["client"] for row in done.rows("participation") if row["round"] == number]


@pytest.mark.parametrize(("at_round", "times"), [(1, 1), (3, 1), (3, 3)])
def test_each_attempt_is_charged(at_round: int, times: int, run: Callable[..., Any], killed: Any) -> None:
    killed(KEYS, "run", at_round, times)
    done = run(KEYS, "run", resume=True, seed=1).rounds()
    rows = done.rows("privacy")
    charged = Counter((row["round"], row["client"]) for row in rows)
    for number in range(1, 5):
        again = times + 1 if number == at_round else 1
        assert {client: charged[number, client] for client in took_part(done, number)} == dict.fromkeys(
            took_part(done, number), again
        )
    shares = [row["noise"] for row in rows if row["round"] == at_round]
    assert shares == [0.8] * 5 * times + [1.0] * 5  # an attempt: the least that a sum has, t of s
    ledger = done.federation.privacy.ledger
    for client in {row["client"] for row in rows}:
        history = Counter(row["honest_noise"] for row in rows if row["client"] == client)
        last = [row for row in rows if row["client"] == client][-1]
        assert last["epsilon"] == ledger.plan.accountant.epsilon(history, last["delta"])
    (event,) = [row for row in done.rows("events") if row["kind"] == "attempt-charged"]
    assert event["round"] == at_round
    assert event["detail"].startswith(f"this round's last stage had begun {'once' if times == 1 else '3 times'} before")
    assert "5 clients are charged" in event["detail"]


def test_the_ledger_is_the_same_when_it_is_rebuilt(run: Callable[..., Any], killed: Any) -> None:
    killed(KEYS, "run", 2, 2)
    resumed = run(KEYS, "run", resume=True, seed=1).rounds(2)
    ledger = resumed.federation.privacy.ledger
    rebuilt = run(KEYS, "run", resume=True, seed=1).federation.privacy.ledger
    assert [rebuilt.of(client) for client in range(30)] == [ledger.of(client) for client in range(30)]
    resumed.records.finish()
    merged = run(KEYS, "run", resume=True, seed=1).federation.privacy.ledger
    assert [merged.of(client) for client in range(30)] == [ledger.of(client) for client in range(30)]


def test_accomplices_see_attempts_like_rounds_that_ended_early(run: Callable[..., Any], killed: Any) -> None:
    keys = KEYS | {"adversary": {"dishonest": list(range(24)), "clients": []}}
    killed(keys, "run", 2, 1)
    done = run(keys, "run", resume=True, seed=1).rounds()
    rows = [row for row in done.rows("privacy") if row["round"] == 2]
    assert len(rows) == 10
    assert {row["colluding_noise"] for row in rows} <= {0.0, 1 / 5, 0.2 * 0.8}


def test_attempts_at_a_round_that_was_announced_by_another_number_are_charged(
    run: Callable[..., Any], killed: Any
) -> None:
    keys = KEYS | {"selection": {"protocol": f"{__name__}:Renumbers", "participants": 5}, "rounds": 7}
    killed(keys, "run", 2, 1)
    done = run(keys, "run", resume=True, seed=1).rounds()
    assert Counter(row["round"] for row in done.rows("privacy")) == {1: 5, 2: 10, 3: 5, 4: 5}  # others: beyond 7
    assert [row["round"] for row in done.rows("events") if row["kind"] == "attempt-charged"] == [2]


def test_with_a_seed_the_noise_is_the_same_and_costs_nothing_more(
    run: Callable[..., Any], killed: Any, tmp_path: Path
) -> None:
    whole = run(KEYS | {"seed": 3}, "whole").rounds()
    killed(KEYS | {"seed": 3}, "run", 2, 2)
    resumed = run(KEYS | {"seed": 3}, "run", resume=True).rounds()
    assert repr(resumed.rows("privacy")) == repr(whole.rows("privacy"))
    assert not (tmp_path / "run" / uploads.ATTEMPTS).exists()


def test_rounds_that_died_before_their_last_stage_are_free(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = run(KEYS, "run", seed=1)
    on_stage = begun.federation.network.on_stage

    def dies(stage: str, now_s: float) -> None:
        if stage == "secagg/consistency":
            raise Killed
        on_stage(stage, now_s)

    monkeypatch.setattr(begun.federation.network, "on_stage", dies)
    with pytest.raises(Killed):
        begun.rounds()
    done = run(KEYS, "run", resume=True, seed=1).rounds()
    assert len(done.rows("privacy")) == 4 * 5


def test_it_is_on_disk_before_any_client_is_asked(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run(KEYS, "run", seed=1)
    deliver, known = done.federation.network.hosts.deliver, []

    async def looks(delivery: Any) -> Any:
        if delivery.kind.stage == "secagg/unmask":
            found = [
                one for one in attempts.read_attempts(tmp_path / "run").values() if one.round_number == delivery.key[0]
            ]
            known.extend(found)
        return await deliver(delivery)

    monkeypatch.setattr(done.federation.network.hosts, "deliver", looks)
    done.rounds()
    assert [one.round_number for one in known] == [1, 2, 3, 4]
    assert [one.participants for one in known] == [took_part(done, number) for number in range(1, 5)]
    assert len(attempts.read_attempts(tmp_path / "run")) == 2  # of the last two rounds


def test_attempts_that_spend_the_budget_end_the_run(run: Callable[..., Any], killed: Any, tmp_path: Path) -> None:
    """The attempted round is recorded without a sum, so that the cost of the attempts is on record."""
    keys = KEYS | {"rounds": 6, "selection": {"participants": 30}}
    keys["aggregation"] = KEYS["aggregation"] | {"threshold": 0.8}
    free = run(keys, "free", seed=1).rounds(1).federation.privacy.ledger
    budget = free.plan.accountant.epsilon({1.0: 1, 0.8: 2}, free.delta) * 1.001
    keys |= {"privacy": {"budget": budget}}
    killed(keys, "run", 2, 2)
    done = run(keys, "run", resume=True, seed=1).rounds()
    assert [row["outcome"] for row in done.rows("rounds")] == ["completed", "skipped"]
    assert done.rows("rounds")[-1]["reason"].startswith("budget-spent: privacy budget: client 0 has spent epsilon")
    rows = done.rows("privacy")
    assert Counter(row["round"] for row in rows) == {1: 30, 2: 60}
    assert max(row["epsilon"] for row in rows) <= budget
    assert stopped(tmp_path / "run", 2)
    assert run(keys, "run", resume=True, seed=1).federation.finished


LOST = {"missing": Path.unlink, "damaged": lambda file: (file.unlink(), file.write_bytes(b"PK and nothing"))}


@pytest.mark.parametrize("how", LOST)
@pytest.mark.parametrize("merged", [False, True])
def test_rounds_after_a_lost_checkpoint_are_charged(
    how: str, merged: bool, run: Callable[..., Any], killed: Any, tmp_path: Path
) -> None:
    """Killed in round 4 after its sum was released, and the checkpoint of round 3 is lost: both are run again."""
    killed(KEYS, "run", 4, 1)
    if merged:
        RunDirectory.reopen(tmp_path / "run").finish()
    before = RunDirectory(tmp_path / "run").table("privacy").to_pylist()
    LOST[how](tmp_path / "run" / "checkpoint.npz")
    done = run(KEYS, "run", resume=True, seed=1).rounds()
    rows = done.rows("privacy")
    charged = Counter(row["round"] for row in rows)
    assert charged == {1: 5, 2: 5, 3: 5 if merged else 10, 4: 10}
    if not merged:
        (event,) = [row for row in done.rows("events") if row["kind"] == "resume"]
        assert event["detail"].startswith("resumed after round 2; ")
    first = {(row["round"], row["client"]): row["epsilon"] for row in before}
    assert len(first) == 15
    for client in {row["client"] for row in before}:
        released = sum(row["client"] == client for row in before)
        assert sum(row["client"] == client for row in rows) >= released


def test_attempts_at_rounds_that_a_spent_budget_keeps_from_coming_are_charged(
    run: Callable[..., Any], killed: Any, tmp_path: Path
) -> None:
    keys = KEYS | {"rounds": 6, "selection": {"participants": 30}}
    keys["aggregation"] = KEYS["aggregation"] | {"threshold": 0.8}
    free = run(keys, "free", seed=1).rounds(1).federation.privacy.ledger
    keys |= {"privacy": {"budget": free.plan.accountant.epsilon({1.0: 3, 0.8: 1}, free.delta) * 1.001}}
    killed(keys, "run", 4, 1)
    (tmp_path / "run" / "checkpoint.npz").unlink()
    done = run(keys, "run", resume=True, seed=1).rounds()
    assert [row["outcome"] for row in done.rows("rounds")] == ["completed", "completed", "skipped"]
    assert Counter(row["round"] for row in done.rows("privacy")) == {
        1: 30,
        2: 30,
        3: 60,
    }


def test_rows_without_a_checkpoint_and_without_an_attempt_are_an_error(run: Callable[..., Any], tmp_path: Path) -> None:
    run(KEYS, "run", seed=1).rounds(3)
    (tmp_path / "run" / "checkpoint.npz").unlink()
    (tmp_path / "run" / uploads.ATTEMPTS).unlink()
    with pytest.raises(RunError, match=naming("attempts.json", "round 3", "parts/")):
        run(KEYS, "run", resume=True, seed=1).rounds()


def test_a_damaged_file_is_an_error(run: Callable[..., Any], killed: Any, tmp_path: Path) -> None:
    killed(KEYS, "run", 2, 1)
    (tmp_path / "run" / uploads.ATTEMPTS).write_text('{"a": {"round_number": 2}}')
    with pytest.raises(RunError, match=naming("attempts.json", "KeyError")):
        run(KEYS, "run", resume=True, seed=1).rounds()


def test_copies_of_a_run_share_their_attempts(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for path in (one, two):
        path.mkdir()
        attempts.add_attempt(path, attempts.ReleaseAttempt(1, np.arange(3).tolist()))
    attempts.unite_attempts(one, attempts.read_attempts(two))
    attempts.unite_attempts(one, attempts.read_attempts(two))
    assert len(attempts.read_attempts(one)) == 2
