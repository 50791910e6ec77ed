"""The documented guarantees of each mix, and a check for servers that exceed them.

- Sums: with no more accomplices than `max_colluders`, every combination of inputs that a server can compute has t - x
  honest updates or more that it does not know (docs/explanation/reconstruction-unsigned.md; with the t and x of a
  neighbourhood: docs/explanation/secagg-plus-argument.md).
- Whole batches: honest members of a batch are in each combination with one coefficient, all of them or none, and no
  single one is known (docs/explanation/batch-atomic.md).
- Lists: all participants are candidates (docs/papers/lotto.md); in strict mode honest clients agree on one list in a
  round.
- Round numbers: a client that agrees on a round has received the announcement of the round before, as far as
  `max_round_gap` requires.
- The ledger: clients in a combination are charged, with no more noise than the combination contains.
"""

from collections.abc import Iterator

import numpy as np

from testbed.engine.registry import aggregation_protocol
from testbed.privacy.ledger import PrivacyCharge
from tests.search.knowledge import Knowledge, Update
from tests.search.oracle import Combination, carried_out, derivable, smallest
from tests.search.selecting import agreeing
from tests.search.world import DIMENSION, Federation


def violations(federation: Federation, knowledge: Knowledge) -> list[str]:
    """Return all violations, one line each: the kind, a colon, the violation."""
    found = [*lists(federation, knowledge), *gaps(federation, knowledge)]
    for number in sorted({one.update.round for one in knowledge.inputs}):
        basis = derivable(knowledge, number)
        for one in basis:
            if not carried_out(knowledge, one):
                raise AssertionError(f"the oracle is wrong: {one} is not what the bytes say")
        found += sums(federation, knowledge, number, basis)
        found += batches(federation, knowledge, basis)
        found += ledger(federation, knowledge, number, basis)
    return found


def written(updates: Iterator[Update] | list[Update]) -> str:
    """Return clients and rounds as text."""
    return ", ".join(f"client {one.client} in round {one.round}" for one in sorted(updates))


def sums(federation: Federation, knowledge: Knowledge, number: int, basis: list[Combination]) -> Iterator[str]:
    """Yield sums over too few honest updates that the server does not know."""
    fewest = promised(federation, knowledge, number)
    one = smallest(basis, (), fewest)
    if one is not None:
        yield f"small sum: a combination of {written(list(one.updates))} alone; promised are {fewest} honest updates"
        return
    one = smallest(basis, knowledge.crafted, fewest)
    if one is not None:
        unknown = [update for update in one.updates if update not in knowledge.crafted]
        crafted = written([update for update in one.updates if update in knowledge.crafted])
        yield (
            f"model inconsistency: a combination of {written(unknown)} alone, beside {crafted} that trained on a "
            f"crafted model; promised are {fewest} honest updates"
        )


def promised(federation: Federation, knowledge: Knowledge, number: int) -> int:
    """Return the fewest honest updates in any combination of this round; 0: no guarantee."""
    accomplices = federation.mix.accomplices
    parameters = federation.aggregation
    if (
        getattr(parameters, "model_binding", "signed") == "none"
    ):  # the guarantee with binding applies; the attack should be found
        parameters = parameters.model_copy(update={"model_binding": "signed"})
    protocol, fewest = aggregation_protocol(parameters), len(federation.honest)
    for one in knowledge.inputs:
        if one.update.round != number:
            continue
        x = len(accomplices & one.around)
        guarantees = protocol.guarantees(one.participants)
        if x > guarantees.max_colluders:
            return 0 if not federation.mix.known_broken else 2
        least = min(guarantees.min_sum_size, guarantees.min_partition_size)
        fewest = min(fewest, least - x)
    return fewest


def batches(federation: Federation, knowledge: Knowledge, basis: list[Combination]) -> Iterator[str]:
    """Yield parts of batches, where `secagg` keeps them whole."""
    kept = federation.aggregation.atomic_batches(federation.environment.batches)
    if kept is None or federation.aggregation.protocol != "secagg":
        return
    for one in basis:
        by_client = {update.client: value for update, value in one.updates.items()}
        unknown = {update.client for update in one.updates if update not in knowledge.crafted}
        for client in sorted(unknown):
            mates = [mate for mate in kept.mates(client).tolist() if mate not in federation.mix.accomplices]
            if any(by_client.get(mate) != by_client[client] for mate in mates):
                yield f"part of a batch: client {client} without all of {mates}, coefficients {by_client}"
                return
            if any(mate not in unknown for mate in mates):
                yield f"model inconsistency: client {client} in a sum with {mates}, who trained on a crafted model"
                return


def lists(federation: Federation, knowledge: Knowledge) -> Iterator[str]:
    """Yield lists with a client that was no candidate, and different lists in one round."""
    for client, number, wrong in knowledge.stuffed[:1]:
        yield f"stuffed list: client {client} agreed in round {number} on a list with {wrong}, no candidates"
    if getattr(federation.selection, "signatures", None) != "strict":
        return
    for number, one, other in agreeing(knowledge.agreed):
        yield f"parallel lists: round {number}, {sorted(one)} and {sorted(other)}, agreed on by all honest members"


def gaps(federation: Federation, knowledge: Knowledge) -> Iterator[str]:
    """Yield rounds that were agreed on although earlier numbers were skipped.

    If the section sets no bound, or switches it off, the bound is 1: the attack should then be found.
    """
    allowed = getattr(federation.selection, "round_gap", None) or 1
    for client, before, number in knowledge.skipped:
        if number - before > allowed:
            yield f"skipped rounds: client {client} agreed on round {number} after round {before}"
            return


def ledger(federation: Federation, knowledge: Knowledge, number: int, basis: list[Combination]) -> Iterator[str]:
    """Yield releases that are not charged, or charged with more noise than they had.

    The round is charged as one that ended early, because a malicious server keeps its results secret. With removable
    noise, only whether a release is charged is checked, not how much noise was removed.
    """
    if federation.aggregation.noise is None or not basis:
        return
    parameters, plan = federation.aggregation, federation.plan
    inputs = [one for one in knowledge.inputs if one.update.round == number]
    s = inputs[0].participants
    asked = np.array(sorted(knowledge.asked_last.get(number, ())), np.int64)
    accomplices = federation.mix.accomplices
    involved = {one.update.client for one in inputs}.union(*(one.around for one in inputs))
    participants = np.array(sorted(involved), np.int64)
    noise = plan.noise_plan(DIMENSION)
    assert noise is not None
    charge = PrivacyCharge(noise, accomplices)
    charges = charge.of_round(participants, participants[:0], None, asked, skipping=False)
    charged = {client: shares for shares, clients in charges.items() for client in clients.tolist()}
    for one in basis:
        hidden = len({update.client for update in one.updates}) / s
        for update in one.updates:
            if update.client not in charged:
                yield f"uncharged release: {written([update])} is in a sum, and is not charged"
                return
            if parameters.noise.enforcement is None and charged[update.client].colluding_noise > hidden + 1e-12:
                yield (
                    f"undercharged release: {written([update])} is hidden by {hidden:.3g} of the planned noise, "
                    f"charged as {charged[update.client].colluding_noise:.3g}"
                )
                return
