"""Questions of the tests of readers and converters: the rows of a trace, and the one line of a refusal."""

from typing import Any

import numpy as np
import pytest

from testbed.emulation.traces.intervals import AvailabilityTrace
from testbed.errors import TraceError


def rows(trace: AvailabilityTrace) -> list[tuple[int, float, float]]:
    """Client, from and until of each interval."""
    client = np.repeat(trace.clients, np.diff(trace.offsets))
    return list(zip(client.tolist(), trace.online_from_s.tolist(), trace.online_until_s.tolist(), strict=True))


def refused(read: Any, *arguments: Any, **options: Any) -> str:
    """The one line with which a reader refuses a file."""
    with pytest.raises(TraceError) as raised:
        read(*arguments, **options)
    (line,) = str(raised.value).splitlines()
    return line
