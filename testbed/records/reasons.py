"""What went wrong in a run, summed up for people: the same words wherever they look."""

from collections import Counter, defaultdict
from collections.abc import Iterable

_LONGEST_DETAIL = 100  # characters
_ORDER = ("aborted", "skipped")


def counted(rounds: Iterable[tuple[str, str]]) -> dict[str, int]:
    """How many rounds each reason has ended, by its name (what precedes the colon), the most frequent first.

    Args:
        rounds: outcome and reason of each.
    """
    names = Counter(_name(reason) for outcome, reason in rounds if outcome in _ORDER)
    return dict(sorted(names.items(), key=lambda item: (-item[1], item[0])))


def summed_up(rounds: Iterable[tuple[str, str]]) -> str:
    """E.g. ``3 aborted: 2 x below-threshold (8 of 9 needed shared their keys), 1 x refused``; empty: all completed.

    A reason with several details shows the first.

    Args:
        rounds: outcome and reason of each, in their order.
    """
    ended: dict[str, list[str]] = defaultdict(list)
    for outcome, reason in rounds:
        if outcome in _ORDER:
            ended[outcome].append(reason)
    parts = []
    for outcome in (name for name in _ORDER if name in ended):
        reasons = ended[outcome]
        each = [
            f"{count} x {name}{_detail([r for r in reasons if _name(r) == name])}"
            for name, count in counted((outcome, reason) for reason in reasons).items()
        ]
        parts.append(f"{len(reasons)} {outcome}: {', '.join(each)}")
    return "; ".join(parts)


def refusals_told(details: Iterable[str]) -> str:
    """E.g. ``3 refusals by clients: 2 x train.dimension, 1 x train.diverged``; empty: none.

    Args:
        details: of the events of this kind; a detail begins with the check's name and a colon.
    """
    checks = Counter(_name(detail) for detail in details)
    if not checks:
        return ""
    each = [f"{count} x {name}" for name, count in sorted(checks.items(), key=lambda item: (-item[1], item[0]))]
    count = checks.total()
    return f"{count} {'refusal' if count == 1 else 'refusals'} by clients: {', '.join(each)}"


def crashes_told(count: int) -> str:
    """E.g. ``13 crashes of clients' code``."""
    return f"{count} {'crash' if count == 1 else 'crashes'} of clients' code"


def behind_told(rounds: int, factor: float | None = None) -> str:
    """E.g. ``the machine could not keep up in 3 rounds, which took 1.80 times as long as links and devices say``."""
    said = f"the machine could not keep up in {rounds} {'round' if rounds == 1 else 'rounds'}"
    return said if factor is None else f"{said}, which took {factor:.2f} times as long as links and devices say"


def _name(reason: str) -> str:
    return reason.partition(":")[0].strip() or "no reason given"


def _detail(reasons: list[str]) -> str:
    details = list(dict.fromkeys(" ".join(reason.partition(":")[2].split()) for reason in reasons))
    first = next((detail for detail in details if detail), "")
    if not first:
        return ""
    shown = first if len(first) <= _LONGEST_DETAIL else f"{first[: _LONGEST_DETAIL - 1]}…"
    return f" ({shown})" if len(details) == 1 else f" (e.g. {shown})"
