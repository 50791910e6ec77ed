"""Properties of aggregation protocols."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.aggregation.contract import Aggregate, AggregationParameters
from testbed.conformance.evidence import FIRST, SHARED_LAST, Evidence
from testbed.conformance.federations import DIMENSION, DrawnUpdates, RoundFacts, Scenario, Trial
from testbed.conformance.results import NotApplicable, PropertyResult, Violation
from testbed.conformance.subjects import Subject
from testbed.engine.plan import RunPlan
from testbed.errors import ExperimentError, reason
from testbed.experiment.schema import validated

_TOLERANCE = 1e-3  # a missing or superfluous update moves some coordinate by ten times as much
_RANDOM_SUBSETS = 5
_DROPOUT_RATE = 0.2
_MOST_RUN_AGAIN = 12  # rounds with other updates


def aggregation_evidence(subject: Subject) -> Evidence:
    """Return the runs of an aggregation protocol."""
    return Evidence(subject, _scenarios)


def _scenarios(plan: RunPlan) -> Iterator[Scenario]:
    """Yield dropouts at each stage: of a few clients, of random subsets, of all but one, and of all."""
    everybody = frozenset(range(plan.experiment.population))
    stages = ("train", *plan.aggregation.stages)
    yield Scenario()
    for place, stage in enumerate(stages):
        first = 2 * place % len(everybody)
        yield Scenario(leaving={stage: frozenset({first, (first + 3) % len(everybody)})})
    yield Scenario()
    generator = np.random.default_rng(len(stages))
    for _ in range(_RANDOM_SUBSETS):
        leaves = generator.uniform(size=len(everybody)) < _DROPOUT_RATE
        places = generator.integers(0, len(stages), len(everybody))
        yield Scenario(
            leaving={
                stage: frozenset(np.flatnonzero(leaves & (places == place)).tolist())
                for place, stage in enumerate(stages)
            }
        )
    yield Scenario()
    for place, stage in enumerate(stages):
        yield Scenario(leaving={stage: everybody - {place % len(everybody)}})
    for stage in stages:
        # All clients: the server must end the round, not divide by zero.
        yield Scenario(leaving={stage: everybody})
    yield Scenario()


@dataclass(frozen=True)
class Reference:
    """A computation of a round's result from the updates themselves.

    Attributes:
        name: name in the report.
        mean: returns the (d,) mean, from a round and its survivors.
        weight: returns the sum of weights, from the survivors.
        is_exact: whether the result is equal to the last bit; else to `_TOLERANCE`.
    """

    name: str
    mean: Callable[[int, Sequence[int]], npt.NDArray[np.float64]]
    weight: Callable[[Sequence[int]], float]
    is_exact: bool = False

    def error(self, number: int, aggregate: Aggregate) -> float:
        """Return the largest error of a coordinate of a round's mean; infinite for a mean of another shape."""
        expected = self.mean(number, aggregate.survivors.tolist())
        if aggregate.mean.shape != expected.shape:
            return inf
        return float(np.abs(aggregate.mean - expected).max())

    def agrees(self, number: int, aggregate: Aggregate) -> bool:
        """Return whether the mean of a round agrees with the reference, without comparing weights."""
        return self.error(number, aggregate) <= (0 if self.is_exact else _TOLERANCE)

    def difference(self, number: int, aggregate: Aggregate) -> str:
        """Return the difference of a round's result from the reference; empty if there is none."""
        survivors = aggregate.survivors.tolist()
        if not self.agrees(number, aggregate):
            return f"is off by {self.error(number, aggregate):.2g}; it must be {self.name} of the survivors {survivors}"
        weight = self.weight(survivors)
        if aggregate.weight == weight:
            return ""
        return f"has the weight {aggregate.weight:g}; the weights of the survivors {survivors} sum to {weight:g}"


def references(plan: RunPlan, workload: DrawnUpdates) -> list[Reference]:
    """Return the references that may fit a protocol, the exact one first.

    Args:
        plan: the plan of the protocol's experiment.
        workload: the workload that made the updates.
    """
    parameters: AggregationParameters = plan.aggregation_parameters
    samples = workload.sample_counts

    def weighted_mean(weights: npt.NDArray[np.int64]) -> Callable[[int, Sequence[int]], npt.NDArray[np.float64]]:
        def mean(number: int, survivors: Sequence[int]) -> npt.NDArray[np.float64]:
            updates = np.array([workload.delta(client, number) for client in survivors], np.float64)
            return np.average(updates, axis=0, weights=weights[list(survivors)])

        return mean

    def sum_of(weights: npt.NDArray[np.int64]) -> Callable[[Sequence[int]], float]:
        return lambda survivors: float(weights[list(survivors)].sum())

    equal_weights = np.ones_like(samples)
    by_samples = parameters.weights == "samples"
    usual = samples if by_samples else equal_weights
    candidates = []
    if (quantisation := parameters.quantisation) is not None:

        def quantised(number: int, survivors: Sequence[int]) -> npt.NDArray[np.float64]:
            total: Any = 0
            for client in survivors:
                # The client's own coins of stochastic rounding: the reference is then equal to the last bit.
                coins = plan.randomness.simulation_key(client, number, "stochastic rounding")
                elements = quantisation.encode(workload.delta(client, number), int(usual[client]), coins)
                # Python's integers: the reference must not share the wrap-around of the tested sum.
                total = total + elements.astype(object)
            return quantisation.decode(np.array(total, np.uint64), len(survivors))[0]

        candidates.append(Reference("the quantised sum", quantised, sum_of(usual), True))
    named = (("the mean by samples", samples), ("the mean of equal weights", equal_weights))
    for name, weights in named if by_samples else named[1:]:
        candidates.append(Reference(name, weighted_mean(weights), sum_of(weights)))
    return candidates


def _completed(evidence: Evidence) -> Iterator[tuple[RoundFacts, Scenario, Aggregate]]:
    for facts, scenario in zip(evidence.rounds, evidence.scenarios, strict=True):
        if facts.outcome.aggregate is not None:
            yield facts, scenario, facts.outcome.aggregate


def survivors_took_part(evidence: Evidence) -> str:
    """Check that survivors are sorted, distinct participants that have trained."""
    count = 0
    for facts, scenario, aggregate in _completed(evidence):
        survivors, participants = aggregate.survivors, facts.outcome.participants
        where = f"round {facts.number}"
        if (np.diff(survivors) <= 0).any():
            raise Violation(f"{where}: survivors {survivors.tolist()} are not sorted and distinct; use np.sort")
        if len(stranger := np.setdiff1d(survivors, participants)):
            raise Violation(
                f"{where}: client {stranger[0]} is a survivor but not a participant; return clients that answered"
            )
        absent = np.intersect1d(survivors, sorted(scenario.leaving.get("train", ())))
        if len(absent):
            raise Violation(
                f"{where}: client {absent[0]} is a survivor but dropped out in training; return clients that answered"
            )
        if not len(survivors) and not evidence.subject.plan.aggregation.allows_empty_selection:
            raise Violation(f"{where} completes without a survivor; raise RoundAborted('too-few-updates', detail)")
        if not (np.isfinite(aggregate.mean).all() and np.isfinite(aggregate.weight)):
            raise Violation(f"{where}: the mean or the weight is not finite; raise RoundAborted instead")
        count += 1
    return f"{count} rounds completed"


def sum_is_that_of_survivors(evidence: Evidence) -> str:
    """Check the results of rounds with dropouts against the updates of the survivors, added up one by one.

    The reference is the one that agrees with the means of rounds without dropouts.
    """
    plan = evidence.whole.plan
    if plan.noise_plan(DIMENSION) is not None:
        raise NotApplicable("it adds noise")
    rounds = list(_completed(evidence))
    complete = [(facts, aggregate) for facts, scenario, aggregate in rounds if scenario.is_complete]
    candidates = references(plan, evidence.whole.workload)
    errors = [max(each.error(facts.number, aggregate) for facts, aggregate in complete) for each in candidates]
    fitting = [
        each for each in candidates if all(each.agrees(facts.number, aggregate) for facts, aggregate in complete)
    ]
    if not fitting:
        nearest = min(range(len(errors)), key=errors.__getitem__)
        raise NotApplicable(
            f"its result is no weighted mean of the updates: without dropouts it is off by {errors[nearest]:.2g} from "
            f"{candidates[nearest].name}"
        )
    reference = fitting[0]
    stages: dict[str, int] = {}
    for facts, scenario, aggregate in rounds:
        if difference := reference.difference(facts.number, aggregate):
            raise Violation(f"round {facts.number}, {_description(scenario)}: the result {difference}")
        for stage in (stage for stage, clients in scenario.leaving.items() if clients):
            stages[stage] = stages.get(stage, 0) + 1
    if not stages:
        raise NotApplicable("no round with dropouts completed")
    at = ", ".join(f"{stage} in {count}" for stage, count in stages.items())
    return f"{reference.name}; dropouts at {at} rounds that completed"


def _description(scenario: Scenario) -> str:
    leaving = [f"{sorted(clients)} drop out at {stage}" for stage, clients in scenario.leaving.items() if clients]
    return "clients " + ", ".join(leaving) if leaving else "no dropouts"


def left_out_updates_have_no_effect(evidence: Evidence) -> str:
    """Check that the updates of clients outside a sum have no effect on the result."""
    everybody = range(evidence.subject.experiment.population)
    changed = {
        facts.number: frozenset(everybody) - frozenset(aggregate.survivors.tolist())
        for facts, _, aggregate in _completed(evidence)
    }
    if not (numbers := [number for number, clients in changed.items() if clients and number <= _MOST_RUN_AGAIN]):
        raise NotApplicable("no client was left out of a sum")
    other = Trial(evidence.subject.experiment, evidence.scenarios, changed=changed).run(max(numbers))
    for before, after in zip(evidence.rounds, other.rounds, strict=False):
        for name in ("the outcome", "the survivors", "the update"):
            if before.parts[name] != after.parts[name]:
                raise Violation(
                    f"{name} of round {before.number} changes with the updates of clients "
                    f"{sorted(changed.get(before.number, ()))}, which are not survivors; sum only updates of survivors"
                )
    return f"{sum(len(changed[number]) for number in numbers)} other updates in {len(numbers)} rounds"


def batches_are_summed_whole(evidence: Evidence) -> str:
    """Check that a batch that has lost a member is left out of the sum, with a selection in batches."""
    subject = evidence.subject
    parameters = subject.plan.aggregation_parameters
    if parameters.batches == "ignored":
        raise NotApplicable("aggregation.batches: ignored")
    selection = {"protocol": "batch-partition", "participants": subject.plan.maximum_participants, "privacy": 2}
    plain = subject.experiment.plain()
    try:
        experiment = validated({**plain, "selection": selection}, f"testbed check {subject.name}")
    except ExperimentError as error:
        raise NotApplicable(f"it does not support a selection in batches ({reason(error)})") from None
    stages = ("train", *subject.plan.aggregation.stages)
    scenarios = [Scenario(leaving={stage: frozenset({1})}) for stage in stages]  # a member of the first batch
    trial = Trial(experiment, [*scenarios, Scenario()]).run(len(scenarios) + 1)
    batches, left_out = trial.plan.selection.batches, 0
    assert batches is not None
    for facts in trial.rounds:
        if facts.outcome.aggregate is None:
            continue
        survivors = facts.outcome.survivors
        if len(broken := batches.broken(survivors.tolist())):
            raise Violation(
                f"round {facts.number}: the survivors {survivors.tolist()} include only a part of the batch "
                f"{batches.members(broken).tolist()}; leave out batches that have lost a member "
                "(parameters.batch_policy), or "
                "declare the key batches: Literal['ignored'] = 'ignored'"
            )
        left_out += len(survivors) < len(facts.outcome.participants)
    if trial.rounds[-1].outcome.aggregate is None:
        raise Violation(f"a round in whole batches is {trial.rounds[-1].outcome.reason} although no client drops out")
    return f"a batch was left out of {left_out} of {len(trial.rounds)} rounds"


PROPERTIES: tuple[PropertyResult[Evidence], ...] = (
    FIRST,
    PropertyResult("Survivors are sorted, distinct participants that trained", survivors_took_part),
    PropertyResult("With any dropouts, the result is that of the survivors", sum_is_that_of_survivors),
    PropertyResult("Updates of clients that are left out have no effect", left_out_updates_have_no_effect),
    PropertyResult("Batches are summed as a whole or not at all", batches_are_summed_whole),
    *SHARED_LAST,
)
