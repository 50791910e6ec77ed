"""What an epsilon does not cover, in one line each, to be said wherever one is printed."""

from collections.abc import Mapping
from typing import Any

SEEDED = (
    "the run has a seed: whoever knows it can compute all noise and take it away, so that it protects nobody; seeds "
    "are for experiments"
)
REPORTED = (
    "losses and sample counts leave the clients without noise (privacy.report_losses): epsilon does not cover them"
)


def caveats(experiment: Mapping[str, Any]) -> list[str]:
    """Those of an experiment with noise, given as plain data (`Experiment.plain`)."""
    found = [SEEDED] if experiment.get("seed") is not None else []
    return found + ([REPORTED] if (experiment.get("privacy") or {}).get("report_losses") else [])
