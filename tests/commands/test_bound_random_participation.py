"""``testbed bound random-participation`` from the outside."""

import json
from collections.abc import Callable
from typing import Any

WHO = ("--local-samples", 30, "--client-rate", 0.001, "--sample-rate", 0.1)


def test_the_papers_setting(call: Callable[..., Any]) -> None:
    ended = call("bound", "random-participation", *WHO, "--epsilon", 0.015, "--delta", "1e-6")
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0] == "d = 30, p = 0.001, q = 0.1, C = 1, delta = 1e-06, T = 1, epsilon = 0.015"
    assert lines[1].split()[:3] == ["wcs", "sigma", "7.6651"]
    assert "guarantee" in lines[1]
    assert ["not a guarantee" in line for line in lines[4:6]] == [True, True]


def test_the_ends_between_which_the_loss_lies(call: Callable[..., Any]) -> None:
    ended = call("bound", "random-participation", *WHO, "--sigma", 1.065, "--delta", "1e-6", "--search", 2)
    assert (ended.code, ended.err) == (0, "")
    values = {line.split()[0]: float(line.split()[2]) for line in ended.out.splitlines()[1:-1]}
    lower = max(values[name] for name in ("orthogonal_pair", "angled_pair", "searched_pair"))
    assert values["orthogonal_pair"] < lower < values["revealed_samples"] < values["wcs"]
    last = ended.out.splitlines()[-1]
    assert [float(word.rstrip(".")) for word in last.split() if word[0].isdigit()] == [
        lower,
        values["revealed_samples"],
    ]


def test_a_search_needs_the_noise(call: Callable[..., Any]) -> None:
    ended = call("bound", "random-participation", *WHO, "--epsilon", 0.015, "--delta", "1e-6", "--search", 2)
    assert ended.code == 2
    assert "--search: needs --sigma" in ended.err


def test_json_names_the_sound_one_and_warns_on_the_side(call: Callable[..., Any]) -> None:
    ended = call(
        "bound", "random-participation", *WHO, "--sigma", 1, "--delta", "1e-3", "--clients", 100, "--format", "json"
    )  # fmt: skip
    found = json.loads(ended.out)
    assert (ended.code, found["sound"], found["wcs_standing"]) == (0, "wcs", "guarantee")
    assert ended.err.startswith("warning: delta 0.001 is not below 1/3000")
    assert not any(isinstance(value, dict | list) for value in found.values())
