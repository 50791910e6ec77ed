"""The batch size of verifiable batch partition that meets a target, or the parameters to change if none does.

A larger batch T protects a client over more rounds, and has two costs: it is less often available, so that more rounds
are skipped, and a few lucky batches bring more dishonest participants. The plan is the largest T, among the divisors of
K, with which both stay within the requirements.

The bound is that of `verifiable_batch_partition`: a malicious server lists the candidate batches of its choice, and may
skip rounds. If the server selects the batches itself (`batch-partition`) no bound holds against it.
"""

from bisect import bisect_left
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor

from analysis.bounds.lotto import MAXIMUM_OVER_SELECTION
from analysis.bounds.verifiable_batch_partition import BatchSetting, bound, candidates_suffice, tolerated

_STEPS = 20  # steps per unit of over-selection: factors are multiples of 0.05


def divisors(number: int) -> list[int]:
    """Return all divisors of a number, ascending.

    Example:
        >>> divisors(12)
        [1, 2, 3, 4, 6, 12]
    """
    return [size for size in range(1, number + 1) if number % size == 0]


@dataclass(frozen=True)
class BatchRequirements:
    """The targets that a batch size has to meet.

    Attributes:
        threshold: t of SecAgg, a number or a fraction of the participants.
        dropout: a client's chance not to answer.
        target: largest allowed probability that SecAgg fails in a round.
        sufficiency: least allowed probability of enough whole candidate batches in a round.
    """

    threshold: int | float
    dropout: float | Fraction
    target: float
    sufficiency: float

    def fails(self, setting: BatchSetting) -> float:
        """Return a bound on the probability that SecAgg fails in a round."""
        return bound(setting, tolerated(setting, self.threshold))[0]

    def enough(self, setting: BatchSetting) -> float:
        """Return the probability that there are enough whole candidate batches in a round."""
        return candidates_suffice(setting, self.dropout)

    def smallest_factor(self, setting: BatchSetting, fails: float, enough: float) -> Fraction | None:
        """Return the smallest over-selection, from the setting's own, with which its batch size meets both targets.

        Args:
            setting: the federation.
            fails: `fails` of the setting.
            enough: `enough` of the setting.

        Returns:
            The factor; None if no factor meets both.
        """
        if fails > self.target:
            return None  # a larger factor raises the probability
        if enough >= self.sufficiency:
            return Fraction(str(setting.over_selection))
        factor = self._often_enough(setting)
        # The larger factor admits more dishonest candidates, so the first target is checked again.
        if factor is None or self.fails(replace(setting, over_selection=factor)) > self.target:
            return None
        return factor

    def way_out(self, single: BatchSetting) -> str:
        """Return the reason why batches of 1 do not meet the targets, and the parameters to change."""
        fails, enough = self.fails(single), self.enough(single)
        reasons, changes = [], []
        if fails > self.target:
            reasons.append(f"SecAgg fails with a probability of up to {fails:.6g} in a round")
        if enough < self.sufficiency:
            reasons.append(f"only {100 * enough:.6g}% of the rounds have enough candidates")
        why = f"even with batches of 1 {', and '.join(reasons)}"
        if enough < self.sufficiency:
            factor = self._often_enough(single)
            if factor is None:
                return f"{why}; no over-selection is enough: use fewer --participants or a lower --sufficiency"
            single = replace(single, over_selection=factor)
            changes.append(f"--over-selection {float(factor):g}")
        if self.fails(single) > self.target:
            # With the larger factor of above: more dishonest members are candidates then.
            least = smallest_threshold(single, self.target)
            if least is None:
                return (
                    f"{why}; no threshold is enough: use more --participants, a larger --min-population or a higher "
                    "--target"
                )
            changes.append(f"--threshold {least}")
        return f"{why}; batches of 1 meet the target with {' and '.join(changes)}"

    def _often_enough(self, setting: BatchSetting) -> Fraction | None:
        """Return the smallest a, in steps of 0.05, with enough candidate batches; None if there is none up to n/K."""
        most = min(Fraction(MAXIMUM_OVER_SELECTION), Fraction(setting.population, setting.participants))
        steps = range(ceil(Fraction(str(setting.over_selection)) * _STEPS), floor(most * _STEPS) + 1)

        def is_enough(step: int) -> bool:
            return self.enough(replace(setting, over_selection=Fraction(step, _STEPS))) >= self.sufficiency

        place = bisect_left(steps, True, key=is_enough)  # more candidates with every step
        return Fraction(steps[place], _STEPS) if place < len(steps) else None


def smallest_threshold(setting: BatchSetting, target: float) -> int | None:
    """Return the smallest t, up to K, with Pr[SecAgg fails] <= target in a round.

    Args:
        setting: the federation.
        target: largest allowed probability.

    Returns:
        t; None if there is none.
    """
    thresholds = range(setting.participants // 2 + 1, setting.participants + 1)
    return next((t for t in thresholds if bound(setting, tolerated(setting, t))[0] <= target), None)
