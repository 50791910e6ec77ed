"""What user-defined classes may still call as it was called before the architecture was rebuilt.

A method that overrides nothing any more would be silently ignored; so it is refused, with its present name. What else a
class looks for under a former name is not there, and the error says what it is called now.
"""

import re
from collections.abc import Mapping

from testbed.errors import ExperimentError

CONTRACT: Mapping[str, str] = {
    "asks_everybody": "broadcasts_to_all",
    "goes_on_without_participants": "allows_empty_selection",
    "tolerated": "guarantees",  # these four, of a protocol or of its parameters, are fields of what it returns
    "fewest_summed": "guarantees",
    "smallest_part": "guarantees",
    "least_noise": "guarantees",
    "kept_whole": "atomic_batches",
}
"""Of protocols and their parameters: names that a contract no longer has, refused in every class that inherits one."""

NAMES: Mapping[str, Mapping[str, str]] = {
    "SelectionRound": {"coin": "rng"},
    "Misbehaviour": {"conspiracy": "context"},
    "ServerMisbehaviour": {"carried_out": "record_attack"},
    "ClientMisbehaviour": {"carried_out": "record_attack"},
    "RoundNetwork": {"rest": "pause"},
    # -- selection --
    "LottoServer": {
        "_require": "require_answers",
        "enough": "require_candidates",
        "evaluated": "selection_input",
        "opened": "open_round",
        "refined": "refined_population",
        "registered": "register",
    },
    "AnnouncingServer": {"lots": "entries"},
    "VerifiableBatchServer": {"proven": "ask_for_proofs"},
    "LottoClient": {
        "by_beacon": "uses_beacon",
        "check_lot": "check_entry",
        "check_own": "check_own_entry",
        "evaluated": "selection_input",
    },
    # -- training --
    "Trainer": {"instead_of_not_finite": "handle_non_finite"},
    # -- aggregation --
    "AggregationParameters": {
        "accountant": "AggregationProtocol.accountant",
        "guarantees": "AggregationProtocol.guarantees",
        "prepare": "AggregationProtocol.prepare",
        "shares_noise": "AggregationProtocol.shares_noise",
    },
    "SecAgg": {
        "_usable": "usable_adverts",
        "_whole": "complete_shares",
        "advert_content": "peer_graph",
        "chosen": "peer_graph",
        "collect_inputs": "collect_masked_inputs",
        "collect_reveals": "check_consistency and collect_shares",
        "counting": "batch_policy",
        "digest_of_training": "advertise_keys",
        "fewest": "batch_policy",
        "included": "choose_survivors",
        "left_out": "batch_policy",
        "mask_input": "peer_graph",
        "peers": "peer_graph",
        "standing_by": "batch_policy",
        "threshold": "peer_graph",
        "told": "peer_graph",
        "unmasked": "unmask",
        "whole": "batch_policy",
    },
    "SecAggParameters": {"fewest_in_sum": "batch_policy"},
    "NoisyParameters": {
        "elements": "noise_policy",
        "mean": "noise_policy",
        "noise_in": "noise_policy",
        "noisy_mean": "noise_policy",
    },
    "NoisyRole": {"_noise_secret": "noise", "noise_shares": "noise_to_add", "noisy": "noise"},
    "SecAggClient": {
        "_advert_content": "advert_content",
        "_associated": "associated",
        "_believable": "believable",
        "_check_adverts": "check_adverts",
        "_check_mates": "check_batch_peers",
        "_check_size": "check_size",
        "_deal": "deal",
        "_digest_of": "common_digest",
        "_digest_of_training": "digest_of_training",
        "_encoded": "encoded",
        "_masks_with_me": "has_masked_with_me",
        "_may_be_left_out": "may_be_left_out",
        "_not_signed": "not_signed",
        "_open_shares": "open_shares",
        "_registered": "registered",
        "_secret": "secret",
        "_share": "share_among",
        "_sign": "sign",
        "_signers": "signers",
        "_stands_by": "keeps_back",
        "_verify": "verify",
        "noise_chain": "noise",
        "noise_to_reveal": "noise",
    },
}
"""By class of the testbed: what its methods and attributes were called, and what each is now, or is part of."""

MODULES: Mapping[str, str] = {
    "testbed.adversary.batch_lists": "testbed.adversary.selection.batches",
    "testbed.adversary.breaking": "testbed.adversary.secagg.small_sums",
    "testbed.adversary.colluding": "testbed.adversary.secagg.dishonest_clients",
    "testbed.adversary.contradictions": "testbed.adversary.secagg.contradictions",
    "testbed.adversary.dealing": "testbed.adversary.secagg.dishonest_clients",
    "testbed.adversary.free_choice": "testbed.adversary.selection.candidates",
    "testbed.adversary.lotto_lists": "testbed.adversary.selection.lists",
    "testbed.adversary.lotto_rounds": "testbed.adversary.selection.lotto",
    "testbed.adversary.lotto_skipping": "testbed.adversary.selection.rounds",
    "testbed.adversary.model_inconsistency": "testbed.adversary.crafted_models",
    "testbed.adversary.parallel_lists": "testbed.adversary.selection.lists",
    "testbed.adversary.parallel_sums": "testbed.adversary.secagg.parallel_sums",
    "testbed.adversary.reconstruction": "testbed.adversary.secagg.reconstruction",
    "testbed.adversary.shrinking": "testbed.adversary.secagg.small_sums",
    "testbed.aggregation.batch_atomic": "testbed.aggregation.batch_policy",
    "testbed.aggregation.combining": "testbed.aggregation.contract",
    "testbed.aggregation.dealt_shares": "testbed.aggregation.secagg.messages",
    "testbed.aggregation.mask_threads": "testbed.network.sums",
    "testbed.aggregation.neighbourhood_bound": "testbed.aggregation.secagg_plus.bound",
    "testbed.aggregation.neighbourhood_graph": "testbed.aggregation.secagg_plus.graph",
    "testbed.aggregation.noise_removal": "testbed.aggregation.secagg.noise",
    "testbed.aggregation.noisy_sums": "testbed.aggregation.kit.ring_elements",
    "testbed.aggregation.secagg_client": "testbed.aggregation.secagg.client",
    "testbed.aggregation.secagg_messages": "testbed.aggregation.secagg.messages",
    "testbed.aggregation.secagg_parameters": "testbed.aggregation.secagg.parameters",
    "testbed.aggregation.secagg_plus_client": "testbed.aggregation.secagg_plus.protocol",
    "testbed.aggregation.secagg_plus_messages": "testbed.aggregation.secagg_plus.graph",
    "testbed.aggregation.share_correction": "testbed.aggregation.secagg.share_recovery",
    "testbed.aggregation.share_disputes": "testbed.aggregation.secagg.share_recovery",
    "testbed.availability": "testbed.emulation.availability",
    "testbed.availability.presence": "testbed.emulation.availability.models",
    "testbed.availability.roundwise": "testbed.emulation.availability.models",
    "testbed.broadcast": "testbed.training",
    "testbed.cost": "testbed.emulation.compute.cost",
    "testbed.crypto.failures": "testbed.crypto",
    "testbed.crypto.hash_to_curve": "testbed.crypto.edwards25519",
    "testbed.crypto.sealing": "testbed.crypto.encryption",
    "testbed.devices": "testbed.emulation.devices",
    "testbed.experiment.workload": "testbed.workload.section",
    "testbed.links": "testbed.emulation.links",
    "testbed.links.building": "testbed.emulation.links.factory",
    "testbed.network.asking": "testbed.network.contract",
    "testbed.parties.summing": "testbed.network.sums",
    "testbed.parties.sums": "testbed.network.sums",
    "testbed.privacy.accountant": "testbed.privacy.noise_plan",
    "testbed.privacy.discrete_gaussian": "testbed.privacy.accounting",
    "testbed.privacy.planning": "testbed.privacy.noise",
    "testbed.privacy.removable": "testbed.privacy.noise",
    "testbed.privacy.renyi": "testbed.privacy.accounting",
    "testbed.privacy.rotation": "testbed.privacy.encoding",
    "testbed.privacy.rounded": "testbed.privacy.accounting",
    "testbed.privacy.skellam": "testbed.privacy.accounting",
    "testbed.privacy.subsampled_gaussian": "testbed.privacy.gaussian",
    "testbed.selection.choosing": "testbed.selection.contract",
    "testbed.selection.lotto_announcing": "testbed.selection.lotto.variants",
    "testbed.selection.lotto_client_centric": "testbed.selection.lotto.variants",
    "testbed.selection.lotto_server": "testbed.selection.lotto.server",
    "testbed.selection.lotto_server_centric": "testbed.selection.lotto.variants",
    "testbed.selection.oort_utility": "testbed.selection.oort",
    "testbed.selection.refinement": "testbed.selection.lotto.refinement",
    "testbed.selection.reports": "testbed.selection.contract",
    "testbed.traces": "testbed.emulation.traces",
    "workloads.classification": "workloads.training.classification",
    "workloads.clipped_gradients": "workloads.training.clipped_gradients",
    "workloads.datasets": "workloads.data.clients.images",
    "workloads.partition": "workloads.data.clients.partition",
    "workloads.randomness": "workloads.determinism",
    "workloads.simulated": "workloads.training.simulated",
    "workloads.text": "workloads.data.clients.text",
    "workloads.threads": "workloads.determinism",
    "workloads.vector": "workloads.models.vector",
}
"""Modules (or packages) that such classes import."""

IMPORTED: Mapping[str, Mapping[str, str]] = {
    "testbed.adversary.misbehaviour": {"Conspiracy": "AttackContext"},
    "testbed.aggregation.secagg": {"SecAgg": "testbed.aggregation.secagg.server.SecAgg"},
    "testbed.aggregation.secagg_plus": {
        "SecAggPlus": "testbed.aggregation.secagg_plus.protocol.SecAggPlus",
        "SecAggPlusParameters": "testbed.aggregation.secagg_plus.parameters.SecAggPlusParameters",
    },
    "testbed.selection.check_in": {"Attendant": "CheckInRole", "Present": "CheckInReply"},
    "testbed.selection.lotto": {
        "Lot": "testbed.selection.lotto.messages.ParticipantEntry",
        "LottoClient": "testbed.selection.lotto.client.LottoClient",
    },
    "testbed.training": {
        "Evaluation": "testbed.workload.contract.Evaluation",
        "LocalUpdate": "testbed.workload.contract.LocalUpdate",
        "GradientWorkload": "testbed.workload.contract.GradientWorkload",
        "InspectableWorkload": "testbed.workload.contract.InspectableWorkload",
        "Workload": "testbed.workload.contract.Workload",
    },
    "workloads.contract": {"FederatedWorkload": "testbed.workload.contract.Workload"},
}
"""By module: names in it that are called otherwise, or are elsewhere."""

_PACKAGES = frozenset({"testbed", "workloads", "cluster", "analysis"})


def check_overrides(kind: type) -> None:
    """Raise `ExperimentError` where a user-defined class among the bases of `kind` overrides what has another name now.

    Args:
        kind: the class that runs: of a protocol's server, malicious or not, of a role, or of parameters.
    """
    ours = [one for one in kind.__mro__ if one.__module__.partition(".")[0] in _PACKAGES]
    former = {name: (one, now) for one in reversed(ours) for name, now in NAMES.get(one.__name__, {}).items()}
    for one in kind.__mro__:
        if one in ours:
            continue
        for name in vars(one):
            if name in former:
                base, now = former[name]
                raise ExperimentError(
                    f"{one.__module__}:{one.__name__}: {name} has no effect: it is now {now}; "
                    f"see {base.__module__}.{base.__name__}"
                )


def hint(error: BaseException) -> str:
    """What the name that `error` did not find is now, to be appended to what it says; empty if it is none of ours."""
    if isinstance(error, AttributeError):
        for kind in type(error.obj).__mro__:
            now = NAMES.get(kind.__name__, {}).get(error.name or "")
            if now:
                return f"; it is now {now}"
        if re.search(r"property .* has no setter", str(error)):
            return "; say it with a class attribute or a property"
    if isinstance(error, ImportError) and error.name is not None:
        for module, now in sorted(MODULES.items(), reverse=True):  # what lies within a package, before the package
            if f"{error.name}.".startswith(f"{module}."):
                return f"; {module} is now {now}"
        wanted = re.match(r"cannot import name '(\w+)'", str(error))
        if wanted and wanted[1] in IMPORTED.get(error.name, {}):
            return f"; it is now {IMPORTED[error.name][wanted[1]]}"
    return ""
