"""``testbed bound moving-updates``: recovery of updates that change from round to round (Remark 3)."""

from typing import Annotated

from analysis.cli.bound.declaration import Row, declare, finite, number, results
from testbed.cli.invocation import option

_SEED = 0  # the same rounds every time
_MOST_TARGETS = 40  # each has a linear program, of tenths of a second for some hundred rounds

_LABELS = {
    "determined": "of {targets} {target}: determined if updates did not change",
    "amplification_least": "A: least",
    "amplification_median": "A: median",
    "amplification_largest": "A: largest",
    "guarantee_least": "error that an estimator can guarantee: least",
    "guarantee_median": "error that an estimator can guarantee: median",
    "floor": "A with any number of rounds: at least",
    "hiding_change": "change that hides every {target_singular} from any guarantee",
    "independent_median": "root mean squared error if changes are independent: median",
}


def _text(row: Row) -> str:
    units = "users" if row["privacy"] == 1 else f"batches of {row['privacy']}"
    first = f"N = {row['users']}, K = {row['selected']}, {row['rounds']} rounds of random {units}, changes of"
    return f"{first} {number(row['change'])} norms of an update\n{results(row, _LABELS)}"


@declare(
    _text,
    "testbed bound moving-updates --users 40 --selected 8 --rounds 60 --change 0.05",
    "testbed bound moving-updates --users 120 --selected 12 --rounds 240 --change 0.02 --format json",
    "testbed bound moving-updates --users 120 --selected 12 --privacy 3 --rounds 240 --change 0.05",
    then="The rounds are drawn with a fixed seed. Errors are in norms of an update; at 1, the estimate 0 is as good.",
)
def bound_moving_updates(
    users: Annotated[int, option("N", "Users, N.", min=2, max=1000)],
    selected: Annotated[int, option("K", "Participants of a round, K.", min=1)],
    rounds: Annotated[int, option("R", "Rounds with a sum.", min=1, max=2000)],
    change: Annotated[
        float, option("X", "Largest distance of an update from its reference, in norms of the update.", min=0)
    ],
    privacy: Annotated[int, option("T", "Batch size, T; the targets are then the means of batches.", min=1)] = 1,
) -> Row:
    """Evaluate how well a server can recover updates that change from the sums of random rounds (Remark 3).

    The smallest error that any estimator can guarantee is the change times A: exact, for every estimator. With single
    users, A is at least 2K - 1 for any number of rounds. For independent changes the error falls with the rounds.
    """
    import numpy as np

    from analysis.bounds.moving_updates import independent_error, least_amplification, recoveries
    from testbed.batches import Batches

    floor = least_amplification(selected, privacy)
    if selected > users:
        raise ValueError(f"selected: K = {selected} of {users} users")
    if users % privacy:
        raise ValueError(f"privacy: T = {privacy} does not divide N = {users}")
    batches = Batches.consecutive(users, privacy)
    count, taken = len(batches), selected // privacy
    rng = np.random.default_rng(_SEED)
    by_batch = np.array([np.isin(np.arange(count), rng.choice(count, taken, replace=False)) for _ in range(rounds)])
    matrix = by_batch[:, batches.of].astype(np.float64)
    targets = min(count, _MOST_TARGETS)
    means = np.equal.outer(np.arange(targets), batches.of) / privacy
    amplifications = np.array([best.amplification for best in recoveries(matrix, means)])
    # A batch's mean has the variance of the sum of its members over T^2, as if T users were one.
    independent = independent_error(by_batch.astype(np.float64)) / np.sqrt(privacy)
    undetermined = "the sums do not determine it"
    return {
        "users": users,
        "selected": selected,
        "privacy": privacy,
        "rounds": rounds,
        "change": change,
        "targets": targets,
        "target": "users" if privacy == 1 else "means of batches",
        "target_singular": "user" if privacy == 1 else "mean of a batch",
        "determined": int(np.isfinite(amplifications).sum()),
        **finite("amplification_least", float(amplifications.min()), undetermined),
        **finite("amplification_median", float(np.median(amplifications)), undetermined),
        **finite("amplification_largest", float(amplifications.max()), undetermined),
        **finite("guarantee_least", change * float(amplifications.min()), undetermined),
        **finite("guarantee_median", change * float(np.median(amplifications)), undetermined),
        "floor": floor,
        "hiding_change": 1 / floor,
        **finite("independent_median", change * float(np.median(independent)), undetermined),
    }
