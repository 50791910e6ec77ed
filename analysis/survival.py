"""Numbers of rounds until something happens, where for some it had not happened when they ended (censored).

E. L. Kaplan and P. Meier, "Nonparametric estimation from incomplete observations", JASA 53 (1958).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """The Kaplan-Meier estimate of the share for which it has not happened yet.

    Attributes:
        times: `(k,)` ascending, when it happened to somebody.
        remaining: `(k,)` the share that is left after each.
    """

    times: Floats
    remaining: Floats

    @property
    def median(self) -> float | None:
        """The first time by which it has happened to at least half; None: it never has."""
        by_then = self.times[self.remaining <= 0.5 + 1e-12]  # a product of factors may miss 0.5 by rounding
        return float(by_then[0]) if len(by_then) else None


def kaplan_meier(values: npt.ArrayLike, happened: npt.ArrayLike) -> Curve:
    """Return the survival curve of `(n,)` times; censoring must be independent of the times.

    Args:
        values: time of the event, or of the end of observation.
        happened: bool; False is censored. A time that is censored at an event's time counts as at risk.
    """
    at, did = np.asarray(values, np.float64), np.asarray(happened, np.bool_)
    times, events = np.unique(at[did], return_counts=True)
    # The left side counts times before, so those that end at the same time are at risk.
    at_risk = len(at) - np.searchsorted(np.sort(at), times)
    return Curve(times, np.cumprod(1 - events / at_risk, dtype=np.float64))
