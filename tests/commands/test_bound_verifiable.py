"""``testbed bound verifiable-batch-partition`` from the outside."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from analysis.bounds.honest_members import too_few_honest_exactly
from analysis.bounds.verifiable_batch_partition import BatchSetting, candidates_suffice, exceeds

SMALL = ("--population", 120, "--dishonest", 12, "--participants", 12, "--privacy", 3, "--over-selection", 2)
COMMAND = ("bound", "verifiable-batch-partition")


def test_json_holds_every_digit_and_no_nan(call: Callable[..., Any]) -> None:
    ended = call(*COMMAND, *SMALL, "--eta", 2, "--threshold", "0.75", "--dropout", 0.1, "--format", "json")
    assert (ended.code, ended.err) == (0, "")
    found = json.loads(ended.out, parse_constant=lambda constant: pytest.fail(constant))
    assert not any(isinstance(value, dict | list) for value in found.values())
    setting = BatchSetting(120, 12, 3, 2.0, 12)
    assert found["candidates_suffice"] == candidates_suffice(setting, 0.1)
    assert found["candidates_suffice_denied"] == candidates_suffice(setting, 0.1, 12) < found["candidates_suffice"]
    assert (found["dishonest_allowed"], found["dishonest_tolerated"], found["threshold"]) == (2, 5, 9)
    assert found["dishonest_fraction_exceeds"] == exceeds(setting, 2)
    assert found["secagg_fails"] == exceeds(setting, 5) >= found["secagg_fails_attained"] > 0
    assert found["fewer_than_2_honest"] == too_few_honest_exactly(setting, 2)
    assert found["fewer_than_3_honest_by"] == "exact"
    assert (found["batches"], found["batches_wanted"], found["selection_probability"]) == (40, 4, 0.2)


def test_text_says_what_cannot_happen_and_what_no_double_holds(call: Callable[..., Any]) -> None:
    out = call(*COMMAND, *SMALL, "--eta", 10).out
    assert out.splitlines()[0] == "n = 120, c = 12, K = 12, T = 3, a = 2, n_min = 120, eta = 10, t = 9, dropout = 0"
    assert re.search("more than 12 of 12 dishonest. +0  .it cannot happen.", out)
    far = ("--population", 10**9, "--dishonest", 10**4, "--participants", 1000, "--privacy", 2, "--threshold", 1000)
    assert "at most 10^-" in call(*COMMAND, *far).out


@pytest.mark.parametrize("command", [(*COMMAND, "--privacy", 3), ("plan", "batch-partition", "--target", 0.1)])
def test_a_small_population_takes_the_over_selection_that_it_allows(command: tuple, call: Callable[..., Any]) -> None:
    ended = call(*command, "--population", 11, "--dishonest", 1, "--participants", 9)
    assert (ended.code, ended.err) == (0, "")
    assert ", a = 1.22222, " in ended.out.splitlines()[0]
    refused = call(*command, "--population", 11, "--dishonest", 1, "--participants", 9, "--over-selection", 1.3)
    assert "--over-selection: 1.3; a K/n exceeds 1, at most 1.22222" in refused.err
