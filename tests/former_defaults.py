"""Default values of earlier versions, for tests with seeds and expected values that belong to them.

With them a test has the steps, the waiting times, the masks and the noise that it was written for: the secrets of a run
with a seed derive from the values that differ from these (`secrets_context`).
"""

from collections.abc import Mapping
from typing import Any

from testbed.experiment.sections import Time
from testbed.workload.section import WorkloadSection


def with_former_defaults(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Write the former default of each key that `keys` leave out.

    Args:
        keys: an experiment as plain data.

    Returns:
        The experiment with sections `workload` and `time`. Momentum stays unset beside `drift_correction`, which
        refuses it.
    """
    workload, time = dict(keys.get("workload") or {}), dict(keys.get("time") or {})
    former = dict(WorkloadSection.former_defaults)
    if workload.get("drift_correction") is not None:
        del former["momentum"]
    return {**keys, "workload": former | workload, "time": dict(Time.former_defaults) | time}
