"""Whole batches under each secure aggregation: T with dropouts, without the check, and against a server that breaks
them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from analysis.multi_round.participation import strong_privacy

KEYS: dict[str, Any] = {
    "population": 24,
    "rounds": 12,
    "selection": {"protocol": "batch-partition", "participants": 12, "privacy": 3},
    "availability": {"dropout": {"rate": 0.06, "stage": "random"}},
}
SECTIONS: dict[str, dict[str, Any]] = {
    "secagg": {"protocol": "secagg", "threshold": 0.6},
    "secagg-plus": {"protocol": "secagg-plus", "dropouts": 0.4},
    "lightsecagg": {"protocol": "lightsecagg", "threshold": 0.5, "max_colluders": 0.25},
    "flamingo": {"protocol": "flamingo", "committee": {"size": 12}, "dropouts": 0.5, "dishonest": 0.05},
    "one-shot": {"protocol": "one-shot", "committee": {"size": 12}},
    "pine": {"protocol": "pine"},
}
Run = Callable[..., Any]


def sums(done: Any) -> np.ndarray:
    """`(completed, n)` bool."""
    completed = [outcome for outcome in done.outcomes if outcome.state == "completed"]
    return np.array([np.isin(np.arange(24), outcome.survivors) for outcome in completed])


@pytest.mark.parametrize("protocol", list(SECTIONS))
def test_t_is_that_of_the_batches_for_any_dropouts(run: Run, protocol: str) -> None:
    section = SECTIONS[protocol]
    whole = sums(run({**KEYS, "aggregation": section}, "whole").rounds())
    assert len(whole) >= 3
    assert len(np.unique(whole.sum(axis=1))) > 1  # batches were left out
    assert strong_privacy(whole) >= 3
    ignored = sums(run({**KEYS, "aggregation": {**section, "batches": "ignored"}}, "ignored").rounds())
    assert strong_privacy(ignored) < 3


@pytest.mark.parametrize("protocol", ["lightsecagg", "flamingo", "one-shot", "pine"])
def test_a_server_that_breaks_a_batch_is_refused_and_else_has_its_way(run: Run, protocol: str) -> None:
    attacked = {
        **KEYS,
        "rounds": 2,
        "availability": {},
        "adversary": {"dishonest": 0, "server": ["break-batch"], "from_round": 2},
        "aggregation": SECTIONS[protocol],
    }
    done = run(attacked, "whole").rounds()
    assert [outcome.state for outcome in done.outcomes] == ["completed", "aborted"]
    assert "aggregation.partial-batch" in done.outcomes[1].reason
    attacks = [row["detail"] for row in done.rows("events") if row["kind"] == "attack"]
    assert len(attacks) == 1
    assert attacks[0].startswith("break-batch: claimed that client ")
    ignored = {**SECTIONS[protocol], "batches": "ignored"}
    seen = sums(run({**attacked, "rounds": 8, "aggregation": ignored}, "ignored").rounds())
    assert [int(row.sum()) for row in seen] == [12, *[11] * 7]
    assert strong_privacy(seen) == 1
