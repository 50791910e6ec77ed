"""``testbed bound`` and ``testbed plan``: the papers' guarantees as numbers, and the parameters that meet a target."""

from analysis.cli.bound import batches, committee, correlated, participation, selection
from analysis.cli.bound.selection import bound as bound
from analysis.cli.bound.selection import plan as plan
from analysis.cli.privacy import BOUND_PRIVACY_EPILOG, bound_privacy

bound.command("random-participation", epilog=selection.BOUND_RANDOM_PARTICIPATION_EPILOG)(
    selection.bound_random_participation
)
bound.command("verifiable-batch-partition", epilog=batches.VERIFIABLE_EPILOG)(batches.bound_verifiable)
bound.command("committee", epilog=committee.BOUND_EPILOG)(committee.bound_committee)
bound.command("correlated", epilog=correlated.EPILOG)(correlated.bound_correlated)
bound.command("participation", epilog=participation.EPILOG)(participation.bound_participation)
plan.command("batch-partition", epilog=batches.PLAN_EPILOG)(batches.plan_batch_partition)
plan.command("committee", epilog=committee.PLAN_EPILOG)(committee.plan_committee)
bound.command("privacy", epilog=BOUND_PRIVACY_EPILOG)(bound_privacy)
bound.command("batch-partition", epilog=selection.BATCH_PARTITION_EPILOG)(selection.bound_batch_partition)
