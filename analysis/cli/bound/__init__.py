"""``testbed bound`` and ``testbed plan``: the papers' guarantees as numbers, and parameters that meet a target."""

from analysis.cli.bound import (
    batch_partition,
    committee,
    correlated,
    lotto,
    lotto_plan,
    moving_updates,
    participation,
    random_participation,
    verifiable_batch_partition,
)
from analysis.cli.privacy import BOUND_PRIVACY_EPILOG, bound_privacy
from testbed.cli.invocation import group

bound = group("bound", "Print the guarantees of the papers for given parameters.", lotto.bound_lotto.epilog)
plan = group("plan", "Print parameters that meet a target.", lotto_plan.plan_lotto.epilog)

lotto.bound_lotto.add_to(bound, "lotto")
lotto.bound_lotto_dp.add_to(bound, "lotto-dp")
random_participation.bound_random_participation.add_to(bound, "random-participation")
verifiable_batch_partition.bound_verifiable.add_to(bound, "verifiable-batch-partition")
committee.bound_committee.add_to(bound, "committee")
correlated.bound_correlated.add_to(bound, "correlated")
participation.bound_participation.add_to(bound, "participation")
bound.command("privacy", epilog=BOUND_PRIVACY_EPILOG)(bound_privacy)
batch_partition.bound_batch_partition.add_to(bound, "batch-partition")
moving_updates.bound_moving_updates.add_to(bound, "moving-updates")
lotto_plan.plan_lotto.add_to(plan, "lotto")
verifiable_batch_partition.plan_batch_partition.add_to(plan, "batch-partition")
committee.plan_committee.add_to(plan, "committee")
