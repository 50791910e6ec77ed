"""Names of refusals and events in records of earlier versions, and the names that replaced them.

Readers translate (`testbed.records.reader`); the files of a run are never rewritten. No former name is used again with
another meaning, so rows of both versions may stand in one table, as in a run that was resumed by a newer version.
"""

import re
from collections.abc import Callable

import pyarrow as pa

__all__ = ["EVENT_KINDS", "RECORDS_VERSION", "REFUSALS", "current_detail", "current_kind", "with_current_names"]

RECORDS_VERSION = 2
"""Version of the names in records, ``provenance.records`` of a run; runs without it have version 1."""

EVENT_KINDS = {
    "attempt": "attempt-charged",
    "behind": "behind-schedule",
    "left-out": "isolated",
    "poisoned": "quarantined",
    "stale": "stale-update",
}
"""Kinds of events: version 1 -> version 2."""

REFUSALS = {
    "aggregation.nothing-trained": "aggregation.no-trained-update",
    "check-in.round-beyond-the-last": "check-in.after-last-round",
    "check-in.round-used": "check-in.round-reused",
    "committee.other-members": "committee.members-mismatch",
    "committee.other-service": "committee.service-mismatch",
    "committee.over-threshold": "committee.above-threshold",
    "committee.round-beyond-the-last": "committee.after-last-round",
    "dp-sgd.already-sent": "dp-sgd.repeated-answer",
    "e-seafl.foreign-survivor": "e-seafl.unknown-survivor",
    "e-seafl.not-a-node": "e-seafl.not-an-assisting-node",
    "e-seafl.other-participants": "e-seafl.participants-mismatch",
    "e-seafl.served-before": "e-seafl.round-reused",
    "e-seafl.too-few": "e-seafl.below-threshold",
    "e-seafl.unbound": "e-seafl.model-not-bound",
    "e-seafl.unsigned": "e-seafl.missing-signature",
    "flamingo.bad-dealing": "flamingo.invalid-dealing",
    "flamingo.bad-point": "flamingo.invalid-point",
    "flamingo.foreign-client": "flamingo.unlisted-client",
    "flamingo.foreign-complaint": "flamingo.unexpected-complaint",
    "flamingo.foreign-dealer": "flamingo.unexpected-dealer",
    "flamingo.foreign-participant": "flamingo.unlisted-participant",
    "flamingo.foreign-signature": "flamingo.unexpected-signature",
    "flamingo.listed-twice": "flamingo.duplicate-client",
    "flamingo.no-former-committee": "flamingo.no-previous-committee",
    "flamingo.not-listed": "flamingo.not-in-list",
    "flamingo.other-ciphertext": "flamingo.ciphertext-mismatch",
    "flamingo.other-commitments": "flamingo.commitments-mismatch",
    "flamingo.other-edges": "flamingo.edges-mismatch",
    "flamingo.other-participants": "flamingo.participants-mismatch",
    "flamingo.other-set-up": "flamingo.set-up-mismatch",
    "flamingo.other-shares": "flamingo.shares-mismatch",
    "flamingo.other-signature": "flamingo.invalid-signature",
    "flamingo.other-state": "flamingo.invalid-state",
    "flamingo.round-used": "flamingo.round-reused",
    "flamingo.too-weak": "flamingo.weak-graph",
    "lightsecagg.bad-piece": "lightsecagg.invalid-piece",
    "lightsecagg.foreign-participant": "lightsecagg.unlisted-participant",
    "lightsecagg.foreign-pieces": "lightsecagg.unexpected-pieces",
    "lightsecagg.foreign-survivor": "lightsecagg.unknown-survivor",
    "lightsecagg.key-used-twice": "lightsecagg.duplicate-key",
    "lightsecagg.listed-twice": "lightsecagg.duplicate-client",
    "lightsecagg.other-threshold": "lightsecagg.threshold-mismatch",
    "lightsecagg.own-key-changed": "lightsecagg.own-key-mismatch",
    "lightsecagg.too-few": "lightsecagg.below-threshold",
    "lotto.batch-not-whole": "lotto.partial-batch",
    "lotto.foreign-signature": "lotto.unexpected-signature",
    "lotto.listed-twice": "lotto.duplicate-client",
    "lotto.other-parameters": "lotto.parameters-mismatch",
    "lotto.over-threshold": "lotto.above-threshold",
    "lotto.own-entry-changed": "lotto.own-entry-mismatch",
    "lotto.population-changed": "lotto.population-mismatch",
    "lotto.round-beyond-the-last": "lotto.after-last-round",
    "lotto.round-passed": "lotto.round-in-the-past",
    "lotto.round-skipped": "lotto.round-gap-too-large",
    "lotto.round-used": "lotto.round-reused",
    "lotto.wrong-registration-key": "lotto.registration-key-mismatch",
    "message.other-protocol": "message.unexpected-type",
    "one-shot.bad-share": "one-shot.invalid-share",
    "one-shot.foreign-shares": "one-shot.unexpected-shares",
    "one-shot.foreign-signature": "one-shot.unexpected-signature",
    "one-shot.foreign-survivor": "one-shot.unknown-survivor",
    "one-shot.other-participants": "one-shot.participants-mismatch",
    "one-shot.served-before": "one-shot.round-reused",
    "one-shot.too-few": "one-shot.below-threshold",
    "one-shot.unbound": "one-shot.model-not-bound",
    "pine.bad-share": "pine.invalid-share",
    "pine.foreign-report": "pine.unexpected-report",
    "pine.foreign-survivor": "pine.unknown-survivor",
    "pine.other-helper": "pine.helper-mismatch",
    "pine.other-participants": "pine.participants-mismatch",
    "pine.served-before": "pine.round-reused",
    "pine.too-few": "pine.below-threshold",
    "pine.unbound": "pine.model-not-bound",
    "pki.not-by-the-client": "pki.unauthorised-registration",
    "plain.already-sent": "plain.repeated-answer",
    "plain.without-noise": "plain.noise-left-out",
    "secagg-plus.other-list": "secagg-plus.participants-mismatch",
    "secagg-plus.other-neighbourhood": "secagg-plus.neighbourhood-mismatch",
    "secagg-plus.too-few-survivors": "secagg-plus.below-threshold",
    "secagg.alone": "aggregation.single-participant",
    "secagg.batch-apart": "secagg.inconsistent-batch-keys",
    "secagg.declared-dead": "secagg.declared-dropped",
    "secagg.foreign-participant": "secagg.unlisted-participant",
    "secagg.foreign-shares": "secagg.unexpected-shares",
    "secagg.foreign-signature": "secagg.unexpected-signature",
    "secagg.foreign-survivor": "secagg.unknown-survivor",
    "secagg.forged-keys": "aggregation.forged-keys",
    "secagg.key-used-twice": "secagg.duplicate-key",
    "secagg.listed-twice": "secagg.duplicate-client",
    "secagg.not-agreed": "aggregation.no-agreed-list",
    "secagg.nothing-to-remove": "secagg.no-removable-noise",
    "secagg.other-keys-or-training": "aggregation.keys-or-model-mismatch",
    "secagg.other-participants": "aggregation.participants-mismatch",
    "secagg.other-threshold": "secagg.threshold-mismatch",
    "secagg.own-keys-changed": "secagg.own-keys-mismatch",
    "secagg.partial-batch": "aggregation.partial-batch",
    "secagg.too-few": "secagg.below-threshold",
    "secagg.too-few-participants": "aggregation.too-few-participants",
    "secagg.too-many-participants": "aggregation.too-many-participants",
    "train.dimension": "train.dimension-mismatch",
    "train.later-state": "train.state-of-later-round",
    "train.not-agreed": "train.no-agreed-list",
    "train.not-taking-part": "train.not-participating",
    "train.other-algorithm": "train.algorithm-mismatch",
    "train.round-beyond-the-last": "train.after-last-round",
    "train.round-used": "train.round-reused",
}
"""Refusals, by the name of the check that failed: version 1 -> version 2.

In version 1, checks that several aggregation protocols share had names of `secagg`; since version 2 they begin with
``aggregation.``.
"""

_NAME = re.compile(r"(?<![\w.-])(" + "|".join(sorted(map(re.escape, REFUSALS), key=len, reverse=True)) + r")(?![\w-])")


def current_kind(kind: str) -> str:
    """Return the present name of a kind of event.

    Args:
        kind: as recorded, by any version.

    Example:
        >>> current_kind("poisoned"), current_kind("refusal")
        ('quarantined', 'refusal')
    """
    return EVENT_KINDS.get(kind, kind)


def current_detail(detail: str) -> str:
    """Return an event's detail with the present names of the refusals that it names.

    Args:
        detail: as recorded, by any version.

    Example:
        >>> current_detail("secagg.declared-dead: declared as dropped out, but is there")
        'secagg.declared-dropped: declared as dropped out, but is there'
    """
    return _NAME.sub(lambda match: REFUSALS[match.group()], detail)


_COLUMNS: dict[str, dict[str, Callable[[str], str]]] = {
    "events": {"kind": current_kind, "detail": current_detail},
    "rounds": {"reason": current_detail},
}
"""Columns with names of refusals or kinds of events, by table."""


def with_current_names(rows: pa.Table, name: str) -> pa.Table:
    """Return rows of a table with the present names of refusals and kinds of events.

    Args:
        rows: of any version; columns that are absent are passed over.
        name: of the table, as in `testbed.records.schemas.SCHEMAS`.
    """
    for column, current in _COLUMNS.get(name, {}).items():
        if column in rows.column_names:
            place = rows.column_names.index(column)
            values = rows.column(column).to_pylist()
            renamed = pa.array([value if value is None else current(value) for value in values], pa.string())
            rows = rows.set_column(place, rows.schema.field(column), renamed)
    return rows
