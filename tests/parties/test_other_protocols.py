"""A client answers the questions of its run's protocols; every other one is a refusal, never a crash."""

from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np
import pytest

from testbed.adversary.secagg.dishonest_clients import HandOver
from testbed.aggregation.secagg.client import SecAggClient
from testbed.aggregation.secagg.messages import CheckSurvivors, ProveShare
from testbed.aggregation.secagg.noise import UnmaskAndRemove
from testbed.aggregation.secagg_plus.graph import AnnounceGraph
from testbed.aggregation.secagg_plus.protocol import SecAggPlusClient
from testbed.emulation.compute.cost import REFERENCE_COSTS, ComputeModel
from testbed.engine.plan import RunPlan
from testbed.experiment.schema import validated
from testbed.messages import Message, Vector, detach, encode
from testbed.network.hosts import Delivery
from testbed.parties.client import Environment, Role, handles
from testbed.parties.host import Host, LocalHosts
from testbed.parties.pki import PKI, Directory
from tests.messages_named import naming

N = 20
MIXES: dict[str, dict[str, Any]] = {
    "plain": {"aggregation": {"protocol": "plain"}},
    "secagg": {},
    "secagg, unsigned": {"aggregation": {"protocol": "secagg", "consistency": "none"}},
    "secagg-plus": {"aggregation": {"protocol": "secagg-plus", "neighbours": 6, "accept_weaker": True}},
    "lightsecagg": {"aggregation": {"protocol": "lightsecagg"}},
    "flamingo": {"aggregation": {"protocol": "flamingo", "committee": {"size": 6}}},
    "one-shot": {"aggregation": {"protocol": "one-shot", "committee": {"size": 9}, "max_colluders": 2}},
    "pine": {"aggregation": {"protocol": "pine"}},
    "lotto-client-centric": {"selection": {"protocol": "lotto-client-centric"}},
    "lotto-server-centric": {"selection": {"protocol": "lotto-server-centric"}},
    "verifiable-batch-partition": {
        "selection": {"protocol": "verifiable-batch-partition", "participants": 10, "privacy": 5}
    },
    "min-separation": {"selection": {"protocol": "min-separation", "separation": 2}},
    "balls-in-bins": {"selection": {"protocol": "balls-in-bins", "bins": 4, "coins": "clients"}},
    "dp-sgd": {
        "selection": {"protocol": "bernoulli", "client_rate": 0.2},
        "aggregation": {"protocol": "dp-sgd-random-participation", "sample_rate": 0.1, "sigma": 1.0},
    },
}


def questions(of: type[Message] = Message) -> Iterator[type[Message]]:
    """All questions that any party of the testbed asks."""
    for kind in of.__subclasses__():
        if kind.stage and kind.Answer is not None and kind.__module__.startswith("testbed."):
            yield kind
        yield from questions(kind)


def filled(kind: Any) -> Any:
    """Some well-formed value of the type of a message, or of one of its fields."""
    if get_origin(kind) is Annotated:
        inner, *limits = get_args(kind)
        least = max((getattr(limit, "min_length", None) or 0 for limit in limits), default=0)
        return bytes(least) if inner is bytes else filled(inner)
    if get_origin(kind) is list:
        return []
    if isinstance(kind, type) and issubclass(kind, Message):
        fields = get_type_hints(kind, include_extras=True)
        return kind(*(filled(fields[name]) for name in kind.__struct_fields__))
    return {int: 1, float: 0.5, str: "", bytes: b"", Vector: Vector(np.zeros(3, np.float32), 0)}.get(kind)


def asked(host: Host, kind: type[Message]) -> Any:
    """Return client 0's answer to a question of this kind."""
    message = detach(filled(kind))
    private = None if kind.Private is None else {0: encode(filled(kind.Private))}
    return host.deliver(
        Delivery(
            key=(1, 0),
            kind=kind,
            header=message.header,
            vectors=message.vectors,
            recipients=np.array([0]),
            private=private,
        )
    )


@pytest.mark.parametrize("mix", MIXES)
def test_no_question_of_any_protocol_crashes_a_client(mix: str) -> None:
    plan = RunPlan(validated({"seed": 1, "population": N} | MIXES[mix], mix), 1)
    compute = ComputeModel(False, REFERENCE_COSTS)
    environment = Environment(
        population=N,
        randomness=plan.randomness,
        compute=compute,
        directory=Directory.empty(N),
        batches=plan.selection.batches,
    )
    hosts = LocalHosts(N, environment, plan.roles, on_crash="drop")
    hosts.register(PKI(N, plan.randomness))
    (host,) = hosts.hosts
    kinds = list(dict.fromkeys(questions()))
    assert len(kinds) > 15
    assert HandOver in kinds
    for kind in kinds:
        host.begin_round()
        answers = asked(host, kind)
        assert answers.crashes == [], kind.__name__
        if kind not in host.questions.values():
            assert [refusal.check for refusal in answers.refusals] == ["message.unexpected-type"], kind.__name__


def test_a_protocol_that_is_built_upon_another_answers_its_own_questions_alone() -> None:
    assert UnmaskAndRemove in SecAggClient.questions
    shared = {CheckSurvivors, ProveShare}
    assert not ({UnmaskAndRemove, *SecAggClient.questions} - shared) & set(SecAggPlusClient.questions)

    class Dishonest(SecAggPlusClient):
        """Overrides nothing."""

    assert Dishonest.questions == SecAggPlusClient.questions


class Unheard(Message, frozen=True):
    """A question that no ancestor answers."""

    stage = "test/unheard"


def test_a_role_that_adds_a_question_must_declare_its_questions() -> None:
    body = {"on_unheard": handles(Unheard)(lambda self, message: None)}
    with pytest.raises(TypeError, match=naming("Own", "Unheard", "answers=(...)")):
        type("Own", (SecAggPlusClient,), dict(body))
    with pytest.raises(TypeError, match=naming("Own", "answers", "Unheard")):
        type("Own", (SecAggPlusClient,), {}, answers=(AnnounceGraph, Unheard))
    said: Any = type("Own", (SecAggPlusClient,), dict(body), answers=(AnnounceGraph, Unheard))
    assert set(said.questions) == {AnnounceGraph, Unheard}
    first: Any = type("First", (Role,), dict(body))
    assert first.questions == (Unheard,)
