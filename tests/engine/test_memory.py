"""The memory of a selection protocol from round to round; the protocol here is user-defined."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from testbed.arrays import Ids
from testbed.errors import RunError
from testbed.selection.contract import SelectionRound, TrainingReports
from testbed.selection.random_selection import RandomSelection
from tests.messages_named import naming

UNSTEADY = {
    "devices": {"model": "zipf", "slowest": 4.0},
    "links": {"latency_ms": [5, 100]},
    "availability": {"dropout": {"rate": 0.2, "stage": "random"}},
    "aggregation": {"protocol": "plain"},
    "selection": {"participants": 6},
    "rounds": 8,
}


class Fastest(RandomSelection):
    """Selects one random client, and the clients that were last measured to be the fastest."""

    def choose(self, present: Ids, round_: SelectionRound) -> Ids:
        """All that it knows is in the round's memory."""
        latency_s = round_.memory.setdefault("latency_s", np.zeros(round_.population))
        round_.memory["rounds"] = round_.memory.get("rounds", np.zeros((), np.int64)) + 1
        fastest = present[np.argsort(latency_s[present], kind="stable")][: self.parameters.participants - 1]
        return np.append(fastest, round_.rng("another").choice(np.setdiff1d(present, fastest)))

    def learn(self, round_: SelectionRound, reports: TrainingReports) -> None:
        """See `SelectionProtocol`."""
        round_.memory["latency_s"][reports.clients] = reports.latency_s
        round_.memory["latency_s"][reports.unheard] = 1e3


class Forgetful(Fastest):
    """Keeps a part of its state outside the checkpoint: the same as `Fastest` without a memory."""

    def choose(self, present: Ids, round_: SelectionRound) -> Ids:
        self._own = getattr(self, "_own", {})
        return super().choose(present, replace(round_, memory=self._own))

    def learn(self, round_: SelectionRound, reports: TrainingReports) -> None:
        super().learn(replace(round_, memory=self._own), reports)


class Learning(RandomSelection):
    """Keeps the reports, for the test to look at."""

    reports: TrainingReports

    def learn(self, round_: SelectionRound, reports: TrainingReports) -> None:
        """See `SelectionProtocol`."""
        self.reports = reports


def with_protocol(run: Any, kind: type[RandomSelection]) -> Any:
    run.plan.selection = kind(run.experiment.selection, run.experiment.population)
    return run


def participants(run: Any) -> list[list[int]]:
    return [outcome.participants.tolist() for outcome in run.outcomes]


def test_reports_combine_client_reports_and_server_measurements(run: Callable) -> None:
    one = with_protocol(run(UNSTEADY, "run"), Learning).rounds(1)
    reports, asked = one.plan.selection.reports, one.outcomes[0].participants
    trained = [row for row in one.rows("exchanges") if row["stage"] == "train"]
    assert [row["client"] for row in trained] == asked.tolist()
    answered = [row for row in trained if row["outcome"] == "answered"]
    assert reports.clients.tolist() == [row["client"] for row in answered]
    assert reports.latency_s.tolist() == [row["received_s"] - row["sent_s"] for row in answered]
    assert (reports.latency_s > 0).all()
    assert reports.waited_s >= reports.latency_s.max()
    assert reports.unheard.tolist() == [row["client"] for row in trained if row["outcome"] != "answered"]
    model = one.workload.initial_model()
    losses = [one.workload.train(client, model, 1).loss for client in reports.clients.tolist()]
    assert reports.loss.tolist() == losses
    assert reports.squared_loss.tolist() == [loss * loss for loss in losses]  # this workload gives no squares
    assert reports.samples.tolist() == one.workload.sample_counts[reports.clients].tolist()


def test_a_resumed_run_remembers(run: Callable) -> None:
    whole = with_protocol(run(UNSTEADY, "whole"), Fastest).rounds()
    with_protocol(run(UNSTEADY, "stopped"), Fastest).rounds(4)
    resumed = with_protocol(run(UNSTEADY, "stopped", resume=True, hosts=2), Fastest).rounds()
    assert participants(resumed) == participants(whole)[4:]
    assert resumed.federation.state.model.tobytes() == whole.federation.state.model.tobytes()
    memory, kept = whole.federation.state.memory, resumed.federation.state.memory
    assert memory.keys() == kept.keys() == {"latency_s", "rounds"}
    assert int(memory["rounds"]) == 8
    for name in memory:
        assert memory[name].dtype == kept[name].dtype
        assert memory[name].tobytes() == kept[name].tobytes()
    # The memory matters: a protocol that keeps it outside the checkpoint continues differently.
    with_protocol(run(UNSTEADY, "forgetful"), Forgetful).rounds(4)
    forgot = with_protocol(run(UNSTEADY, "forgetful", resume=True), Forgetful)
    forgot.plan.selection._own = {}
    assert participants(forgot.rounds()) != participants(whole)[4:]


def test_a_round_has_a_memory_of_its_own(run: Callable) -> None:
    """Changes of a protocol to its arrays in one round do not affect the checkpointed state of the previous round."""
    one = with_protocol(run(UNSTEADY), Fastest).rounds(2)
    before = one.federation.state.memory["latency_s"].copy()
    state = one.federation.state
    one.rounds(1)
    assert np.array_equal(state.memory["latency_s"], before)
    assert not np.array_equal(one.federation.state.memory["latency_s"], before)


@pytest.mark.parametrize("kept", [["a", "b"], [object()], {"a": 1}])
def test_a_memory_that_no_checkpoint_can_hold_ends_the_run_at_once(kept: Any, run: Callable) -> None:
    class Hoarding(RandomSelection):
        def learn(self, round_: SelectionRound, reports: TrainingReports) -> None:
            round_.memory["diary"] = kept

    one = with_protocol(run(UNSTEADY, "run"), Hoarding)
    with pytest.raises(RunError, match=naming("selection", "memory['diary']")) as error:
        one.rounds(1)
    assert "\n" not in str(error.value)
