"""Words, codes and units in the tables and the experiment of a run.

Code that reads records imports them from here; names of the network and of the emulation are re-exported.
"""

from collections.abc import Mapping
from typing import Any

from testbed.emulation.traces.bandwidth import BYTES_PER_MBIT
from testbed.emulation.traces.schedule import FATES
from testbed.network.exchanges import OUTCOMES
from testbed.network.in_flight import STAGES as IN_FLIGHT_STAGES
from testbed.workload.specs import is_language

__all__ = [
    "BYTES_PER_MBIT",
    "DIVERGED",
    "FATES",
    "IN_FLIGHT_STAGES",
    "OUTCOMES",
    "is_language",
    "privacy_caveats",
]

DIVERGED = "train.diverged"
"""Refusal of a client with an update that is not finite: no sign of dishonesty, mostly of a too high learning rate."""

_SEEDED = (
    "the run has a seed: anyone with the seed can compute all noise and subtract it, so it protects nobody; seeds "
    "are for experiments"
)
_REPORTED = (
    "losses and sample counts leave the clients without noise (privacy.report_losses): epsilon does not cover them"
)


def privacy_caveats(experiment: Mapping[str, Any]) -> list[str]:
    """Return the limits of the epsilon of an experiment with noise, one clause each.

    Args:
        experiment: plain data, as in experiment.yaml (`Experiment.plain`).
    """
    caveats = [_SEEDED] if experiment.get("seed") is not None else []
    return caveats + ([_REPORTED] if (experiment.get("privacy") or {}).get("report_losses") else [])
