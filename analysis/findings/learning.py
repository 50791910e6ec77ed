"""Checks for models that do not learn: updates that are not finite, accuracy at chance, growing losses."""

from dataclasses import dataclass

import numpy as np

from analysis.comparison.rows import ComparisonRow
from analysis.comparison.targets import model_changed
from analysis.findings.compared import ComparedRows, Finding, counted, diverged_events, span
from testbed.records import RunRecords

LEAST_REFUSED = 0.1
"""Share of a row's trainings with an update that was not finite. Below it, only the notes of the table report them."""
LEAST_EVALUATIONS = 3
"""Number of evaluations after the first changed model. With fewer, a model is not expected to have learned."""
ABOVE_CHANCE = 0.05
"""Part of the way from chance to a perfect balanced accuracy within which a model counts as no better than chance."""
TIMES_CHANCE = 1.5
"""Multiple of chance below which a model counts as no better than chance; the stricter limit for many labels."""
LOSS_FALLS = 0.05
"""Relative fall of the loss that shows that a model at chance does learn."""
LOSS_OF_A_GUESS = 0.98
"""Multiple of the cross-entropy of a uniform guess, ln(labels). At or above it, a falling loss shows no learning."""
SHARE_OF_ONE_LABEL = 0.75
"""Accuracy from which a model that predicts a single label looks good."""
LOSS_GROWS = 2.0
"""Ratio of the last loss to the first above which training diverges."""

_KEYS = ("workload.learning_rate", "workload.momentum", "workload.epochs")


def not_finite(compared: ComparedRows) -> list[Finding]:
    """Find rows in which clients refused to send updates that were not finite."""
    rows, clients, refusing, rates = list[ComparisonRow](), 0, 0, list[float]()
    numbers: list[int] = []
    for row in compared.rows:
        refusals = [(run, diverged_events(run)) for run in row.runs if not run.has_misbehaviour]
        trainings = sum(len(run.participation) for run, _ in refusals)
        count = sum(len(events) for _, events in refusals)
        if not count or count < LEAST_REFUSED * trainings:
            continue
        rows.append(row)
        for run, events in refusals:
            parties = set(events["party"])
            clients += len(parties | {f"client:{client}" for client in run.participation["client"]})
            refusing += len(parties)
            numbers += events["round"].tolist()
            if (rate := run.value("workload.learning_rate")) is not None:
                rates.append(float(rate))
    if not rows:
        return []
    rate = f"; the learning rate is {span(rates, '{:g}')}" if rates else ""
    when = f"round {min(numbers)}" if min(numbers) == max(numbers) else f"rounds {min(numbers)} to {max(numbers)}"
    text = f"{refusing:,} of {counted(clients, 'client')} had an update that is not finite, in {when}{rate}"
    return [Finding("not-finite", text, compared.labels(rows), _KEYS)]


@dataclass(frozen=True)
class _Course:
    """The evaluations of one run from the first round that changed the model.

    Attributes:
        accuracy: `(k,)`, NaN if not measured.
        loss: `(k,)`, NaN if not measured.
        recalls: `(k, labels)` of the labels that have held-out samples; None if not recorded.
    """

    accuracy: np.ndarray
    loss: np.ndarray
    recalls: np.ndarray | None

    @classmethod
    def of(cls, run: RunRecords) -> "_Course":
        rounds = run.rounds
        measured = rounds["accuracy"].notna() | rounds["loss"].notna()
        rounds = rounds[measured & model_changed(rounds)]
        recalls = [row for row in rounds["recalls"] if row is not None] if "recalls" in rounds else []
        table = None
        if len(recalls) == len(rounds) and len(rounds) and len({len(row) for row in recalls}) == 1:
            table = np.array([np.asarray(row, np.float64) for row in recalls])
            table = table[:, ~np.isnan(table).all(axis=0)]
        return cls(
            rounds["accuracy"].to_numpy(np.float64),
            rounds["loss"].to_numpy(np.float64),
            table if table is not None and table.shape[1] > 1 else None,
        )

    @property
    def loss_falls(self) -> bool:
        """Whether the last loss is clearly below the first."""
        finite = self.loss[np.isfinite(self.loss)]
        return len(finite) == len(self.loss) > 1 and bool(finite[-1] < (1 - LOSS_FALLS) * finite[0])

    def is_at_chance(self, evaluations: int = 1) -> bool:
        """Return whether the last evaluations are no better than a prediction that ignores the input.

        The mean of all recalls (balanced accuracy) of a constant or random prediction is 1 over the number of labels,
        at any frequency of the labels.

        Args:
            evaluations: how many of the last evaluations count.
        """
        if self.recalls is None:
            return False
        chance = 1 / self.recalls.shape[1]
        most = min(chance + ABOVE_CHANCE * (1 - chance), TIMES_CHANCE * chance)
        return bool((np.nanmean(self.recalls[-evaluations:], axis=1) <= most).all())

    @property
    def loss_is_of_a_guess(self) -> bool:
        """Whether the last loss is close to that of a uniform guess among the labels, or larger."""
        if self.recalls is None:
            return False
        return bool(self.loss[-1] >= LOSS_OF_A_GUESS * np.log(self.recalls.shape[1]))

    def predicted_label(self, evaluation: int = -1) -> int | None:
        """Return the index of the only label that a model predicts; None if it predicts several.

        Args:
            evaluation: index of the evaluation; the last by default.
        """
        if self.recalls is None:
            return None
        recalls = self.recalls[evaluation]
        best = int(np.nanargmax(recalls))
        others = np.delete(recalls, best)
        return best if recalls[best] >= 0.9 and np.nanmax(others) <= 0.02 else None

    def predicts_by_frequency(self) -> bool:
        """Return whether the last models predict one label for everything and learned at most the labels' frequencies.

        The accuracy of such a model is the share of its label, and its loss falls to the entropy of the labels' shares.
        Either the accuracy is high enough to hide the failure, or the loss is at least that entropy.
        """
        if self.recalls is None or len({self.predicted_label(-1 - back) for back in range(LEAST_EVALUATIONS)}) > 1:
            return False
        share = self.accuracy[-1]
        if self.predicted_label() is None or not 0 < share < 1:
            return False
        return bool(share >= SHARE_OF_ONE_LABEL or self.loss[-1] >= LOSS_OF_A_GUESS * self._most_entropy(share))

    def _most_entropy(self, share: float) -> float:
        """Return the largest entropy of the labels, in nats, if one of them has this share."""
        assert self.recalls is not None
        others = self.recalls.shape[1] - 1  # the entropy is largest if all other labels are equally frequent
        return float(-share * np.log(share) - (1 - share) * np.log((1 - share) / others))

    def is_constant(self) -> bool:
        """Return whether all evaluations have the same accuracy, below 1."""
        measured = self.accuracy[~np.isnan(self.accuracy)]
        return len(measured) >= LEAST_EVALUATIONS and bool((measured == measured[0]).all()) and measured[0] < 1.0


def predicts_one_label(run: RunRecords) -> bool:
    """Return whether the model of the last evaluation predicts one label for everything, as far as the records show."""
    course = _Course.of(run)
    return course.recalls is not None and course.predicted_label() is not None


def does_not_learn(compared: ComparedRows) -> list[Finding]:
    """Find rows with models no better than chance, or with a growing loss."""
    chance, grows = list[tuple[ComparisonRow, list[_Course]]](), list[tuple[ComparisonRow, list[_Course]]]()
    for row in compared.rows:
        if any(run.has_misbehaviour for run in row.runs):
            continue
        courses = [_Course.of(run) for run in row.runs]
        courses = [course for course in courses if len(course.loss) >= LEAST_EVALUATIONS]
        if not courses:
            continue
        failing = [course for course in courses if _is_stuck(course)]
        if 2 * len(failing) > len(courses):  # an unlucky seed is no finding
            chance.append((row, failing))
        elif growing := [course for course in courses if course.recalls is None and _loss_grows(course)]:
            grows.append((row, growing))
    return [*_at_chance(compared, chance), *_growing(compared, grows)]


def _is_stuck(course: _Course) -> bool:
    if course.recalls is None:
        return course.is_constant()
    if course.predicts_by_frequency() or (course.is_at_chance() and not course.loss_falls):
        return True
    return course.is_at_chance(LEAST_EVALUATIONS) and course.loss_is_of_a_guess


def _loss_grows(course: _Course) -> bool:
    first, last = course.loss[0], course.loss[-1]
    return not np.isnan(first) and (not np.isfinite(last) or bool(last > LOSS_GROWS * abs(first)))


def _at_chance(compared: ComparedRows, failing: list[tuple[ComparisonRow, list[_Course]]]) -> list[Finding]:
    if not failing:
        return []
    courses = [course for _, row_courses in failing for course in row_courses]
    accuracy = span([100 * course.accuracy[-1] for course in courses], "{:.1f}")
    evaluations = max(len(course.loss) for course in courses)
    balanced = [course for course in courses if course.recalls is not None]
    text = f"the model does not learn: accuracy {accuracy} % after {counted(evaluations, 'evaluation')}"
    single = [course.predicted_label() for course in balanced]
    if balanced and None not in single:
        text += (
            f", and it predicts one label for everything ({span([float(label or 0) for label in single], '{:.0f}')})"
        )
        if all(course.predicts_by_frequency() for course in balanced):
            text += ", so the accuracy is the share of that label"
    elif balanced:
        labels = span([float(course.recalls.shape[1]) for course in balanced if course.recalls is not None], "{:.0f}")
        text += f", no better than a guess among {labels} labels"
    else:
        text += ", the same in each evaluation"
    losses = [course for course in courses if np.isfinite(course.loss).all()]
    if losses:
        text += (
            f"; loss {np.mean([course.loss[0] for course in losses]):.3g} at first, {losses_end(losses):.3g} at last"
        )
    rows = [row for row, _ in failing]
    noisy = any(run.value("aggregation.noise") for row in rows for run in row.runs)
    keys = ("aggregation.noise", "aggregation.noise.clip", *_KEYS[:1]) if noisy else _KEYS
    return [Finding("does-not-learn", text, compared.labels(rows), keys)]


def losses_end(courses: list[_Course]) -> float:
    """Return the mean of the last losses."""
    return float(np.mean([course.loss[-1] for course in courses]))


def _growing(compared: ComparedRows, failing: list[tuple[ComparisonRow, list[_Course]]]) -> list[Finding]:
    if not failing:
        return []
    courses = [course for _, row_courses in failing for course in row_courses]
    first, last = np.mean([course.loss[0] for course in courses]), losses_end(courses)
    end = f"grows from {first:.3g} to {last:.3g}" if np.isfinite(last) else f"was {first:.3g} and is not finite now"
    return [Finding("loss-grows", f"the loss {end}: training diverges", compared.labels(r for r, _ in failing), _KEYS)]
