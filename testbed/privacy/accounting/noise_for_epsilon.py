"""How much noise an epsilon asks for."""

from collections.abc import Callable
from math import sqrt

from testbed.privacy.accounting.accountant import Accountant

_LEAST, _MOST = 2.0**-10, 2.0**20  # noise that hides nothing; noise beside which there is no signal
_TOLERANCE = 1e-6


def noise_multiplier_for(accountant: Callable[[float], Accountant], epsilon: float, delta: float, rounds: int) -> float:
    """The least noise multiplier that keeps a client's epsilon, to a relative 1e-6 and never below it; at least 2**-10.

    Args:
        accountant: of a noise multiplier; its epsilon falls as that grows.
        epsilon: not to be exceeded.
        delta: in (0, 1).
        rounds: that the client takes part in, with all of the planned noise.

    Raises:
        ValueError: an argument out of range, or an epsilon that no noise of up to 2**20 times the clip attains.
    """
    if not epsilon > 0:
        raise ValueError(f"epsilon: {epsilon}; must be above 0")
    if rounds < 1:
        raise ValueError(f"rounds: {rounds}; must be at least 1")

    def cost(multiplier: float) -> float:
        return accountant(multiplier).epsilon({1.0: rounds}, delta)

    low = high = 1.0
    while cost(high) > epsilon:
        if high >= _MOST:
            raise ValueError(
                f"epsilon: {epsilon:g} cannot be kept over {rounds} rounds at delta {delta:g}: noise of {_MOST:g} "
                f"times the clip still costs {cost(_MOST):.3g}; allow more, or take finer steps (scale)"
            )
        low, high = high, 2 * high
    while low == high or cost(low) <= epsilon:
        if low <= _LEAST:
            return low
        low, high = low / 2, low
    while high / low - 1 > _TOLERANCE:
        middle = sqrt(low * high)
        low, high = (low, middle) if cost(middle) <= epsilon else (middle, high)
    return high
