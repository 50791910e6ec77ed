"""Names of earlier versions that user-defined classes may still use, and the names that replaced them.

`testbed.plugins.classes` says the present name where a class of the user's imports or overrides a former one.
"""

import re

__all__ = ["MEMBERS", "MODULES", "NAMES", "advice"]

MODULES = {
    "testbed.crypto.remembered": "testbed.crypto.memo",
    "testbed.network.kinds": "testbed.network.client_groups",
}
"""Modules: former to present name."""

NAMES = {
    "testbed.selection.oort": {
        "LEARNED": "PACED_ROUNDS",
        "drawn_by_weight": "draw_by_weight",
        "or_mean": "fill_with_mean",
    },
    "testbed.memory": {
        "Kept": "StoredMessage",
    },
    "testbed.adversary.victims": {
        "drawn_victim": "draw_victim",
        "recovery_told": "describe_recovery",
    },
    "testbed.adversary.secagg.parallel_sums": {
        "summed_apart": "sum_separately",
    },
    "testbed.adversary.poisoned_samples": {
        "stamped": "add_trigger",
    },
    "testbed.plugins.options": {
        "made": "create_with_options",
    },
    "testbed.records.tables": {
        "is_kept": "has_table",
    },
    "testbed.records.reader": {
        "behind_told": "format_delay",
        "crashes_told": "format_crashes",
        "refusals_told": "format_refusals",
        "summed_up": "format_end_reasons",
    },
    "testbed.records.mirror": {
        "fetched": "local_copy_for_reading",
    },
    "testbed.crypto.prime_field": {
        "reduced": "reduce_words",
    },
    "testbed.selection.lotto.refinement": {
        "refined": "refined_population",
        "remember": "store_measurements",
        "worst": "worst_clients",
    },
    "testbed.selection.own_coins": {
        "decisions": "ask_decisions",
    },
    "testbed.selection.contract": {
        "ending_with": "attach_selection_state",
        "merged": "merge_reports",
        "reports_of": "training_reports",
    },
    "testbed.emulation.availability.section": {
        "DropOut": "Dropout",
    },
    "testbed.emulation.traces.conversion.collector": {
        "disjoint": "join_intervals",
    },
    "testbed.emulation.traces.conversion.fedscale": {
        "behaviour": "behaviour_trace",
        "capacity": "capacity_table",
    },
    "testbed.emulation.traces.conversion.series_formats": {
        "detected": "detect_format",
    },
    "testbed.emulation.traces.repetition": {
        "repeated": "repeat_recordings",
    },
    "testbed.emulation.availability.clocked": {
        "assigned": "assign_devices",
    },
    "testbed": {
        "of_shape": "clients_with_shape",
    },
    "testbed.adversary.pine": {
        "AnswerWrongSum": "AnswerWrongReportSum",
    },
    "testbed.adversary.registration": {
        "Attempt": "RegistrationAttack",
    },
    "testbed.adversary.secagg.reconstruction": {
        "Attempt": "ReconstructionAttempt",
    },
    "testbed.aggregation.buffered": {
        "Kept": "StoredUpdate",
    },
    "testbed.aggregation.contract": {
        "keeps_masks_symbolic": "uses_symbolic_masks",
        "of_shape": "clients_with_shape",
    },
    "testbed.aggregation.flamingo.bound": {
        "Requirements": "CommitteeRequirements",
    },
    "testbed.aggregation.flamingo.messages": {
        "OwnState": "SealedMemberState",
        "Report": "MaskedReport",
    },
    "testbed.aggregation.kit.message_parts": {
        "ToldOfParticipants": "RoundNotice",
        "told_digest": "notice_digest",
        "Told": "ParticipantNotice",
    },
    "testbed.aggregation.lightsecagg.messages": {
        "AdvertOf": "LightSecAggAdvertOf",
        "AdvertiseKeys": "AdvertiseLightSecAggKeys",
        "KeyAdvert": "LightSecAggKeyAdvert",
        "MaskInput": "MaskLightSecAggInput",
        "Masked": "LightSecAggMasked",
        "SealedForPeers": "PiecesForPeers",
        "SealedFromPeers": "PiecesFromPeers",
    },
    "testbed.aggregation.one_shot.messages": {
        "Submission": "OneShotSubmission",
        "Submit": "OneShotSubmit",
    },
    "testbed.aggregation.pine.messages": {
        "Submission": "PineSubmission",
        "Submit": "PineSubmit",
    },
    "testbed.aggregation.robust_rules": {
        "ELSEWHERE": "MISPLACED_KEY_HINT",
    },
    "testbed.aggregation.secagg.messages": {
        "Shares": "RevealedShares",
    },
    "testbed.aggregation.secagg_plus.bound": {
        "Requirements": "NeighbourhoodRequirements",
    },
    "testbed.arrays": {
        "once": "compress_constant",
    },
    "testbed.committee.messages": {
        "Claim": "MembershipClaim",
    },
    "testbed.conformance.results": {
        "Property": "PropertyResult",
    },
    "testbed.crypto.memo": {
        "note_sealed": "store_plaintext",
        "opened": "cached_opening",
        "Results": "Memo",
        "all_verify": "verify_all",
        "latest": "cached_latest",
        "once": "cached",
        "remembers": "memo_scope",
    },
    "testbed.crypto.sortition": {
        "first_not_under": "smallest_not_under_threshold",
        "surely_not_under": "certainly_above_threshold",
        "which_under_threshold": "below_threshold_mask",
    },
    "testbed.crypto.threads": {
        "each": "thread_map",
    },
    "testbed.emulation.links.section": {
        "one_or_list": "number_or_list",
        "cycled": "cycle_values",
        "Drawn": "RandomValue",
    },
    "testbed.emulation.traces.conversion.plain_pickle": {
        "Unreadable": "UnreadablePickle",
    },
    "testbed.emulation.traces.series": {
        "shaped": "steps_from_rows",
        "Series": "RateSeries",
    },
    "testbed.emulation.transport.congestion": {
        "Flight": "SenderFlights",
    },
    "testbed.engine.federation": {
        "Progress": "RunProgress",
    },
    "testbed.engine.plan": {
        "Plan": "RunPlan",
    },
    "testbed.experiment.validation": {
        "held": "as_plain_data",
    },
    "testbed.network.client_groups": {
        "Kinds": "ClientGroups",
    },
    "testbed.network.connections": {
        "Plan": "SendSchedule",
    },
    "testbed.network.fair_sharing.flights": {
        "Progress": "TransferProgress",
    },
    "testbed.network.in_flight": {
        "Flight": "PendingExchange",
        "Flights": "PendingExchanges",
        "Leg": "PendingQuestion",
    },
    "testbed.network.recorder": {
        "RoundRecorder": "RecordingNetwork",
    },
    "testbed.parties.client": {
        "Progress": "StageProgress",
        "Row": "Transition",
    },
    "testbed.parties.idle_clients": {
        "Heard": "DeferredQuestion",
    },
    "testbed.plugins.entry_points": {
        "Unreadable": "BrokenEntryPoint",
    },
    "testbed.privacy.ledger": {
        "Shares": "NoiseShares",
    },
    "testbed.records.arrays": {
        "Found": "LoadedCheckpoint",
    },
    "testbed.records.store": {
        "each": "thread_map",
    },
    "testbed.records.writer": {
        "Attempt": "ReleaseAttempt",
    },
    "testbed.selection.lotto.messages": {
        "proves": "verify_claim",
        "which_stand": "below_threshold",
    },
    "testbed.training": {
        "Asked": "QuestionGroups",
        "OwnState": "StateReference",
        "Trained": "TrainingReport",
    },
}
"""By module (its present name): former to present name."""

MEMBERS = {
    "by_losses": ("uses_reported_losses",),
    "certain_answer": ("shared_answer_predicate",),
    "check_told": ("check_notice",),
    "draws_by_samples": ("needs_sample_counts",),
    "keeps_masks": ("supports_symbolic_masks",),
    "kept": ("remaining_share",),
    "learned": ("train_on_poisoned",),
    "told": ("training_report", "recipients", "recovery"),
    "told_of_group": ("recovery_of_group",),
    "wanted": ("attacked_samples", "required"),
}
"""Attributes and methods that users override: former to present name, which is one of these by the class."""

_CANNOT_IMPORT = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'")


def advice(error: BaseException) -> str:
    """Return the present name of the module or class that an import did not find; empty if it was not renamed.

    Args:
        error: an exception of importing a module of the user's.

    Example:
        >>> advice(ImportError("cannot import name 'Row' from 'testbed.parties.client' (client.py)"))
        'testbed.parties.client.Row is called Transition now'
    """
    if isinstance(error, ModuleNotFoundError) and error.name in MODULES:
        return f"{error.name} is called {MODULES[error.name]} now"
    if isinstance(error, ImportError) and (match := _CANNOT_IMPORT.search(str(error))):
        name, module = match.groups()
        if present := NAMES.get(module, {}).get(name):
            return f"{module}.{name} is called {present} now"
        if present := MODULES.get(f"{module}.{name}"):
            return f"{module}.{name} is called {present} now"
    return ""
