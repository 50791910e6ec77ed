"""Clients that omit one check each: a search that works should notice the missing check.

There is a mutant for every `raise Refusal("name", ...)` in the client side of the protocols (read from the source, so a
new check is a new mutant), for every row of Lotto's stages, and for a few changed decisions. Not every missing check
can be noticed: some checks only end a round early that would fail later, or back up another check.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from testbed.aggregation.batch_policy import CompleteBatches
from testbed.aggregation.kit.participant import Participant
from testbed.aggregation.secagg import client as secagg_client
from testbed.aggregation.secagg.client import SecAggClient
from testbed.aggregation.secagg_plus.protocol import SecAggPlusClient
from testbed.parties.client import StageProgress
from testbed.selection.lotto.client import LottoClient
from testbed.selection.lotto.variants import AnnouncedClient, ServerCentricClient
from testbed.selection.verifiable_batch_partition import VerifiableBatchClient
from testbed.training import Trainer, trained_update
from tests.search.mixes import MIXES, guarded, left_open
from tests.search.runner import kind_of, plays
from tests.search.world import Federation, remembered

CLIENTS = (
    Participant,
    SecAggClient,
    SecAggPlusClient,
    Trainer,
    LottoClient,
    AnnouncedClient,
    ServerCentricClient,
    VerifiableBatchClient,
    CompleteBatches,
)


@dataclass(frozen=True)
class Mutant:
    """One omitted check.

    Attributes:
        name: the check and its place, or the changed decision.
        owner: class or module that is patched.
        attribute: the patched attribute.
        instead: its replacement.
        among: parts of the names of the mixes in which the code runs.
    """

    name: str
    owner: Any
    attribute: str
    instead: Any
    among: tuple[str, ...]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Replace the attribute in all clients inside the block."""
        with ExitStack() as stack:
            stack.enter_context(patch.object(self.owner, self.attribute, self.instead))
            yield


def mutants() -> list[Mutant]:
    """Return all mutants."""
    found = []
    for owner in CLIENTS:
        for name, function in vars(owner).items():
            for check, place in _checks(function):
                found.append(_without(owner, name, function, check, place, _mixes(owner)))
    for check, place in _checks(trained_update):
        found.append(_without(secagg_client, "trained_update", trained_update, check, place, ("secagg,",)))
    return [*found, *_out_of_order(), *_other_decisions()]


def _out_of_order() -> Iterator[Mutant]:
    """Return clients of Lotto that answer a question in every state and round, one for each row of the table."""
    for owner in (LottoClient, VerifiableBatchClient):
        table = owner.STAGES
        states = {table.start, *table.new_round.values()} | {
            state for row in table.rows.values() for state in row.sources
        }
        for question, row in table.rows.items():
            rows = {question: replace(row, sources=states, starts_round=True)}
            name = f"{row.refusal} ({owner.__name__}.STAGES, {question.__name__})"
            yield Mutant(name, owner, "STAGES", table.extended(rows), _mixes(owner))


def _other_decisions() -> list[Mutant]:
    unbound: Callable[..., Any] = lambda self: b""  # noqa: E731
    everybody: Callable[..., Any] = lambda self: {*self.received, self.client.number}  # noqa: E731
    yes: Callable[..., Any] = lambda self, *_: True  # noqa: E731
    no: Callable[..., Any] = lambda self, *_: False  # noqa: E731
    nothing: Callable[..., Any] = lambda self, *_: None  # noqa: E731
    in_any_order: Callable[..., Any] = lambda self, message, number: self._table.rows[type(message)]  # noqa: E731
    plus, whole = ("secagg-plus",), ("whole batches",)
    return [
        Mutant("stages may come in any order", StageProgress, "check", in_any_order, _mixes(SecAggClient)),
        Mutant("envelopes not bound to the list of keys", SecAggClient, "common_digest", unbound, ("secagg,",)),
        Mutant("signatures of those outside the sum count", SecAggClient, "signers", everybody, whole),
        Mutant("nobody may be declared dead but oneself", SecAggClient, "may_be_left_out", yes, ("secagg,",)),
        Mutant("the own batch is not asked for", SecAggClient, "keeps_back", no, whole),
        Mutant("batch-mates' shares need not open", SecAggClient, "check_batch_peers", nothing, whole),
        Mutant("signatures are not verified", SecAggClient, "verify", nothing, ("secagg,",)),
        Mutant("neighbours need not have masked with it", SecAggPlusClient, "has_masked_with_me", yes, plus),
        Mutant("the own list need not be the neighbours'", SecAggPlusClient, "common_digest", unbound, plus),
    ]


def _mixes(owner: type) -> tuple[str, ...]:
    if owner in (Participant, SecAggClient):
        return ("secagg, 2", "secagg, no", "secagg, 1", "secagg, whole", "lotto-client-centric with secagg")
    if owner is CompleteBatches:
        return ("whole batches",)
    if owner is SecAggPlusClient:
        return ("secagg-plus",)
    if owner is ServerCentricClient:
        return ("server-centric",)
    if owner is VerifiableBatchClient:
        return ("verifiable",)
    lotto = ("lotto-client-centric", "lotto-server-centric with secagg", "verifiable")
    return (*lotto, "secagg, 2", "secagg, no") if owner is Trainer else lotto


def _source(function: Any) -> ast.Module:
    return ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))


def _check_of(node: ast.AST) -> str | None:
    """Return the code of the check that a `raise` states."""
    call = node.exc if isinstance(node, ast.Raise) else None
    named = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Refusal"
    if named and call is not None and isinstance(call.args[0], ast.Constant):  # type: ignore[attr-defined]
        return str(call.args[0].value)  # type: ignore[attr-defined]
    return None


def _checks(function: Any) -> list[tuple[str, int]]:
    """Return the checks in a function, each with its line."""
    if not inspect.isfunction(function):
        return []
    return [(check, node.lineno) for node in ast.walk(_source(function)) if (check := _check_of(node)) is not None]  # type: ignore[attr-defined]


def _without(owner: Any, name: str, function: Any, check: str, line: int, among: tuple[str, ...]) -> Mutant:
    """Return the function compiled again, with `pass` in place of one `raise`."""

    class Skip(ast.NodeTransformer):
        def visit_Raise(self, node: ast.Raise) -> ast.AST:
            return ast.copy_location(ast.Pass(), node) if (_check_of(node), node.lineno) == (check, line) else node

        def visit_Call(self, node: ast.Call) -> ast.AST:
            self.generic_visit(node)
            if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
                node.args = [ast.Name("__owner__", ast.Load()), ast.Name("self", ast.Load())]
            return node

    target = inspect.unwrap(function)
    changed = ast.fix_missing_locations(Skip().visit(_source(function)))
    scope = {**target.__globals__, "__owner__": owner}
    exec(compile(changed, f"<{owner.__name__}.{name} without {check}>", "exec"), scope)
    made = scope[target.__name__]
    if hasattr(function, "_handles"):
        made._handles = function._handles
    return Mutant(f"{check} ({owner.__name__.rsplit('.', 1)[-1]}.{name}, line {line})", owner, name, made, among)


@dataclass(frozen=True)
class Noticed:
    """A missing check that was noticed.

    Attributes:
        mix: name of the mix.
        kind: of the violation.
        servers: number of servers played before.
    """

    mix: str
    kind: str
    servers: int


def noticed(mutant: Mutant, seed: int, servers: int) -> Noticed | None:
    """Return whether a server exceeds the guarantees with mutants in a way that it does not with complete clients.

    A client without a check may also fail in other ways, and so may the server that receives its messages; this does
    not count.
    """
    for mix in MIXES:
        if mix.known_broken or not any(part in mix.name for part in mutant.among):
            continue
        known, count = {*left_open(mix), "crash"}, 0
        with remembered(), mutant.at_work():
            federation = Federation(guarded(mix))
            while count < servers:
                try:
                    for one in plays(federation, seed + count):
                        count += 1
                        found = {kind_of(line) for line in one.violations} - known
                        if found:
                            return Noticed(mix.name, min(found), count)
                        if count >= servers:
                            break
                except Exception:
                    count += 1
    return None
