"""``testbed bound`` and ``testbed plan`` from the outside."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from analysis.bounds.lotto import candidates_suffice, dishonest_fraction_exceeds, secagg_fails

PAPER = ("--population", 200_000, "--dishonest", 1000, "--participants", 200)
DP = ("--rounds", 50, "--noise-multiplier", 6.27)


def object_in(text: str) -> dict[str, Any]:
    """A flat JSON object without NaN or infinities."""

    def refuse(constant: str) -> float:
        raise AssertionError(constant)

    found: dict[str, Any] = json.loads(text, parse_constant=refuse)
    assert not any(isinstance(value, dict | list) for value in found.values())
    assert all(found[f"{key}_reason"] for key, value in found.items() if value is None and f"{key}_reason" in found)
    return found


def values(lines: list[str]) -> list[str]:
    """Return the second column of a table of results."""
    return [re.split(" {2,}", line, maxsplit=1)[1] for line in lines]


def test_lotto_prints_the_papers_numbers(call: Callable[..., Any]) -> None:
    ended = call("bound", "lotto", *PAPER, "--over-selection", 1.3, "--eta", 10, "--threshold", "0.53")
    assert (ended.code, ended.err) == (0, "")
    parameters, *lines = ended.out.splitlines()
    assert parameters == "n = 200000, c = 1000, s = 200, a = 1.3, n_min = 200000, eta = 10, t = 106"
    printed, completed = ["0.0013", "0.999953", "1.3", "0.00650008"], ["1.31325e-07", "1", "1.39609e-08", "1.39615e-08"]
    assert values(lines) == [*printed, "1.3132e-07", *completed, "1"]
    assert "more than 10 of 200 dishonest" in lines[4]
    assert "more than 11 dishonest" in lines[7]


def test_lotto_for_completed_rounds_and_another_announced_population(call: Callable[..., Any]) -> None:
    given = ("--population", 100, "--dishonest", 10, "--participants", 10, "--eta", 2)
    lines = call("bound", "lotto", *given, "--announced", 130, "--rounds", 300, "--completed", 60).out.splitlines()
    assert lines[0].startswith(
        "n = 100, c = 10, s = 10, a = 1.3, n_min = 100, announced n = 130, eta = 2, t = 7, R = 300"
    )
    assert values(lines[2:3]) == ["0.54871"]
    assert values(lines[5:8]) == ["0.130764", "0.147804", "1"]
    found = object_in(call("bound", "lotto", *given, "--rounds", 300, "--completed", 60, "--format", "json").out)
    assert found["exceeding_share_of_completed"] == pytest.approx(5 * found["dishonest_fraction_exceeds"])
    assert found["failing_share_of_completed"] == pytest.approx(5 * found["secagg_fails"])
    ended = call("bound", "lotto", *given, "--announced", 99)
    assert ended.err == "error: --announced: clients refuse 99, which is below n_min = 100\n"
    ended = call("bound", "lotto", *given, "--rounds", 5, "--completed", 6)
    assert ended.err.startswith("error: --completed: needs --rounds, the number of announced rounds, which is at least")


def test_lotto_over_rounds_that_a_server_may_skip(call: Callable[..., Any]) -> None:
    given = ("--population", 100, "--dishonest", 20, "--participants", 10, "--threshold", 9, "--rounds", 3000)
    lines = call("bound", "lotto", *given, "--round-gap", 3).out.splitlines()
    assert lines[0] == "n = 100, c = 20, s = 10, a = 1.3, n_min = 100, eta = 10, t = 9, R = 3000, G = 3"
    assert values(lines[8:11]) == ["0.00239005", "0.00280389", "1"]
    assert values(lines[12:]) == ["0.999237", "7.17015", "0.00715303", "0.00717015", "0.00715303"]
    unbounded = call("bound", "lotto", *given).out.splitlines()
    assert unbounded[0].endswith("R = 3000")
    assert [line.split()[-1] for line in unbounded[12:]] == ["0.999237", "7.17015", "0.999237", "1", "0.999237"]
    found = object_in(call("bound", "lotto", *given, "--format", "json").out)
    assert (found["round_gap"], found["failing_share_expected"]) == (None, 1.0)
    nobody = object_in(call("bound", "lotto", *given, "--dishonest", 0, "--format", "json").out)
    assert (nobody["some_round_fails"], nobody["some_round_fails_log10"]) == (0.0, None)


def test_a_gap_is_about_rounds(call: Callable[..., Any]) -> None:
    ended = call("bound", "lotto", *PAPER, "--round-gap", 1)
    assert (ended.code, ended.err) == (
        2,
        "error: --round-gap: needs --rounds, the number of rounds over which it holds\n",
    )


def test_lotto_dp_with_several_lists_a_round(call: Callable[..., Any]) -> None:
    lines = call("bound", "lotto-dp", *PAPER, *DP, "--parallel-lists").out.splitlines()
    assert values(lines[3:4]) == ["1.77466  (k = 12, r = 6)"]
    found = object_in(call("bound", "lotto-dp", *PAPER, *DP, "--parallel-lists", "--format", "json").out)
    assert found["client_centric_epsilon"] < found["parallel_lists_epsilon"] < found["server_centric_epsilon"]


def test_lotto_as_json_holds_every_digit(call: Callable[..., Any]) -> None:
    found = object_in(call("bound", "lotto", *PAPER, "--min-population", 150_000, "--format", "json").out)
    assert found["candidates_suffice"] == candidates_suffice(200_000, 200, 1.3)
    assert found["dishonest_fraction_exceeds"] == dishonest_fraction_exceeds(200_000, 1000, 200, 1.3, 10, 150_000)
    assert found["secagg_fails"] == secagg_fails(1000, 200, 1.3, 150_000, 140)
    assert (found["threshold"], found["eta"], found["min_population"]) == (140, 10.0, 150_000)
    assert found["selection_probability"] == pytest.approx(1.3 * 200 / 150_000, rel=1e-15)


def test_what_no_double_holds_is_told_by_its_logarithm(call: Callable[..., Any]) -> None:
    given = ("--population", 10**9, "--dishonest", 10**5, "--participants", 1000, "--threshold", 1000)
    found = object_in(call("bound", "lotto", *given, "--format", "json").out)
    assert found["secagg_fails"] == 0.0
    assert -4000 < found["secagg_fails_log10"] < -300
    assert f"10^{found['secagg_fails_log10']:.1f}" in call("bound", "lotto", *given).out


def test_what_cannot_happen_has_no_logarithm(call: Callable[..., Any]) -> None:
    given = ("--population", 100, "--dishonest", 0, "--participants", 10)
    found = object_in(call("bound", "lotto", *given, "--format", "json").out)
    assert (found["secagg_fails"], found["secagg_fails_log10"]) == (0.0, None)
    assert found["secagg_fails_log10_reason"] == "it cannot happen"
    assert call("bound", "lotto", *given).out.splitlines()[-1].split()[-1] == "0"


def test_lotto_dp(call: Callable[..., Any]) -> None:
    ended = call("bound", "lotto-dp", *PAPER, *DP)
    assert (ended.code, ended.err) == (0, "")
    assert values(ended.out.splitlines()[2:]) == [
        "1.77416  (k = 12, r = 6)",
        "2.0784  (k = 12, r = 8)",
        "2.19135  (k = 12, r = 6)",
        "2.56691  (k = 12, r = 8)",
        "265.259  (k = 199, r = 50)",
    ]
    found = object_in(call("bound", "lotto-dp", *PAPER, *DP, "--format", "json").out)
    assert (found["client_centric_k"], found["client_centric_r"], found["delta"]) == (12, 6, 5e-6)
    assert found["client_centric_p_k"] + found["client_centric_q_r"] < found["delta"]


def test_lotto_dp_without_a_guarantee_says_why(call: Callable[..., Any]) -> None:
    given = ("--population", 100, "--dishonest", 50, "--participants", 20, *DP)
    found = object_in(call("bound", "lotto-dp", *given, "--format", "json").out)
    assert found["client_centric_epsilon"] is None
    assert found["client_centric_epsilon_reason"].startswith("no k has p_k < delta: more than the 7 dishonest")
    text = call("bound", "lotto-dp", *given)
    assert text.code == 0
    assert "none: no k has p_k < delta" in text.out


def test_plan(call: Callable[..., Any]) -> None:
    ended = call("plan", "lotto", *PAPER, "--target", "1e-9", "--base-rate", 0.2, "--eta", 20)
    assert (ended.code, ended.err) == (0, "")
    found = object_in(call("plan", "lotto", *PAPER, "--target", "1e-9", "--base-rate", 0.2, "--format", "json").out)
    least, t = found["smallest_min_population"], found["smallest_threshold"]
    assert secagg_fails(1000, 200, 1.3, least, 140) <= 1e-9 < secagg_fails(1000, 200, 1.3, least - 1, 140)
    assert secagg_fails(1000, 200, 1.3, 200_000, t) <= 1e-9 < secagg_fails(1000, 200, 1.3, 200_000, t - 1)
    assert found["largest_exclusion_clients"] == 200_000 - least
    assert found["largest_exclusion_for_base_rate"] == 0.975
    for key in ("smallest_min_population", "smallest_threshold", "largest_exclusion_clients"):
        assert str(found[key]) in ended.out


def test_a_target_that_nothing_meets_is_no_error(call: Callable[..., Any]) -> None:
    given = ("--population", 100, "--dishonest", 50, "--participants", 10, "--target", "1e-9", "--base-rate", 0.3)
    ended = call("plan", "lotto", *given)
    assert ended.code == 0
    assert "none: SecAgg fails with a probability above 1e-09 in a round even with" in ended.out
    assert "secagg_fails" not in ended.out
    found = object_in(call("plan", "lotto", *given, "--format", "json").out)
    for key in ("smallest_min_population", "largest_exclusion", "smallest_threshold", "largest_over_selection"):
        assert found[key] is None
        assert found[f"{key}_reason"].startswith("SecAgg fails with a probability above 1e-09 in a round even with")
    assert found["largest_exclusion_for_base_rate_reason"] == "50 of 100 are more than 0.3 if no client is excluded"


@pytest.mark.parametrize("command", ["plan lotto", "plan batch-partition", "bound lotto"])
def test_a_share_of_dishonest_clients_is_rounded_up(call: Callable[..., Any], command: str) -> None:
    target = ("--target", "1e-3") if "plan" in command else ()
    given = ("--population", 410, "--participants", 20, "--format", "json", *target)
    numbers = [
        object_in(call(*command.split(), *given, "--dishonest", of).out)["dishonest"] for of in (21, "5%", "0.05")
    ]
    assert numbers == [21, 21, 21]
    for wrong in ("many", "101%", "-1%", "1.5"):
        ended = call(*command.split(), *given, "--dishonest", wrong)
        assert ended.code == 2
        assert "--dishonest" in ended.err


def test_more_participants_than_there_are_cannot_be_dishonest(call: Callable[..., Any]) -> None:
    given = ("--population", 1000, "--dishonest", 100, "--participants", 50)
    text = call("bound", "lotto", *given)
    reason = "it cannot happen: a round has 50 participants"
    assert (text.code, text.err) == (0, "")
    (line,) = (line for line in text.out.splitlines() if "(Theorem 2)" in line)
    assert "more than 50 of 50 dishonest" in line
    assert line.endswith(f"  0  ({reason})")
    found = object_in(call("bound", "lotto", *given, "--format", "json").out)
    assert found["dishonest_fraction_exceeds"] == dishonest_fraction_exceeds(1000, 100, 50, 1.3, 10) == 0.0
    assert found["dishonest_fraction_exceeds_reason"] == found["dishonest_fraction_exceeds_log10_reason"] == reason
    assert found["dishonest_fraction_exceeds_log10"] is None
    below = object_in(call("bound", "lotto", *given, "--eta", 9.9, "--format", "json").out)
    assert below["dishonest_fraction_exceeds"] > 0.0
    assert "dishonest_fraction_exceeds_reason" not in below


def test_the_largest_populations_are_answered(call: Callable[..., Any]) -> None:
    """Dishonest clients everywhere, and tails that no floating point of any width holds."""
    given = ("--population", 10**10, "--dishonest", 10**10, "--participants", 5 * 10**9)
    found = object_in(call("bound", "lotto", *given, "--format", "json").out)
    assert found["candidates_suffice"] == found["secagg_fails"] == 1.0
    found = object_in(call("bound", "lotto", *given[:2], "--dishonest", 10**9, *given[4:], "--format", "json").out)
    assert found["secagg_fails"] == 0.0
    assert found["secagg_fails_log10_reason"] == "it cannot happen"
    fewer = (*given[:2], "--dishonest", 52 * 10**8, *given[4:], "--threshold", 5 * 10**9)
    found = object_in(call("bound", "lotto", *fewer, "--format", "json").out)
    assert found["secagg_fails"] == 0.0
    assert found["secagg_fails_log10"] < -(6 * 10**8)
    assert f"10^{found['secagg_fails_log10']:.1f}" in call("bound", "lotto", *fewer).out


def test_there_may_be_as_many_clients_as_there_are_and_no_fewer(call: Callable[..., Any]) -> None:
    given = ("--population", 2 * 10**9, "--dishonest", 1000, "--participants", 200, *DP, "--format", "json")
    assert object_in(call("bound", "lotto-dp", *given).out)["maximum_population"] == 2 * 10**9
    ended = call("bound", "lotto-dp", *given, "--maximum-population", 2 * 10**9 - 1)
    assert (ended.code, ended.out) == (2, "")
    assert ended.errors == ["error: --maximum-population: n_max = 1999999999 is below the population of 2000000000"]


@pytest.mark.parametrize("multiplier", [1e-9, 1e9])
@pytest.mark.parametrize("scale", [1e-9, 1e18])
@pytest.mark.parametrize("dimension", [1, 10**12])
@pytest.mark.filterwarnings("error")
def test_mechanisms_at_the_ends_of_their_ranges(
    call: Callable[..., Any], multiplier: float, scale: float, dimension: int
) -> None:
    given = ("--population", 1000, "--dishonest", 100, "--participants", 50, "--rounds", 10, "--format", "json")
    mechanism = ("--noise-multiplier", multiplier, "--scale", scale, "--dimension", dimension)
    ended = call("bound", "lotto-dp", *given, *mechanism)
    assert (ended.code, ended.err) == (0, "")
    assert object_in(ended.out)["insecure_epsilon"] >= 0
