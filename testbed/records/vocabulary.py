"""Words, codes and units that the tables and the experiment of a run contain.

The code that reads records imports them from here; names of the network and of the emulation are passed on.
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
"""Refusal of a client whose update is not finite: no sign of dishonesty, mostly of a learning rate that is too high."""

_SEEDED = (
    "the run has a seed: whoever knows it can compute all noise and take it away, so that it protects nobody; seeds "
    "are for experiments"
)
_REPORTED = (
    "losses and sample counts leave the clients without noise (privacy.report_losses): epsilon does not cover them"
)


def privacy_caveats(experiment: Mapping[str, Any]) -> list[str]:
    """Say what the epsilon of an experiment with noise does not cover.

    Args:
        experiment: plain data, as in experiment.yaml (`Experiment.plain`).
    """
    caveats = [_SEEDED] if experiment.get("seed") is not None else []
    return caveats + ([_REPORTED] if (experiment.get("privacy") or {}).get("report_losses") else [])
