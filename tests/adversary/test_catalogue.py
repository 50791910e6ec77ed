"""The catalogue lists every misbehaviour, and recognises reports of a recovered update."""

import importlib
import pkgutil

import pytest

import testbed.adversary
from testbed.adversary.catalogue import CLIENTS, SERVER, update_recovered
from testbed.adversary.misbehaviour import SERVER_KINDS, Misbehaviour
from testbed.adversary.section import Adversary, AdversarySection
from testbed.randomness import Randomness


def test_every_module_is_listed() -> None:
    found = set()
    for module in pkgutil.walk_packages(testbed.adversary.__path__, "testbed.adversary."):
        for kind in vars(importlib.import_module(module.name)).values():
            if isinstance(kind, type) and issubclass(kind, Misbehaviour) and "name" in vars(kind):
                found.add(kind)
    assert found == {*SERVER, *CLIENTS}


def test_every_server_misbehaviour_names_its_overridden_class() -> None:
    for kind in SERVER:
        assert sum(issubclass(kind, base) for base in SERVER_KINDS) == 1


@pytest.mark.parametrize(
    ("detail", "had"),
    [
        ("contradict-dropouts: victim 5: 4 of 4 needed shares; reconstructed, weight 3, sha256 00", True),
        ("contradict-dropouts: victim 5: 3 of 4 needed shares of the mask key; failed: below-threshold", False),
        ("shrink-the-sum: sum over 1 of 5 honest survivors (3): 4 of 4; reconstructed, weight 3, sha256 00", False),
        ("of-a-users-own: victim 5: recovered", False),
    ],
)
def test_reports_of_a_recovered_update_are_recognised(detail: str, had: bool) -> None:
    assert update_recovered(detail) is had


@pytest.mark.parametrize("aggregation", ["e-seafl", "pine"])
def test_options_reach_the_class_that_accepts_them(aggregation: str) -> None:
    section = AdversarySection(dishonest=[0], clients=[{"answer-wrong-sum": {"by": -0.5}}])
    section.check(4, "random", aggregation)
    adversary = Adversary(section, 4, 1, Randomness(0))
    chosen = [options.by for kind, options in adversary._context.options.items() if aggregation in kind.applies_to]
    assert chosen == [-0.5]


def test_options_of_a_class_for_another_protocol_are_refused() -> None:
    section = AdversarySection(dishonest=[0], clients=[{"answer-wrong-sum": {"by": 0.5}}])
    with pytest.raises(ValueError, match=r"^clients: answer-wrong-sum\.by: unknown option; allowed: none$"):
        section.check(4, "random", "one-shot")
