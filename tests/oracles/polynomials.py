"""Polynomials over prime fields in FLINT: interpolation, and Gao's decoder of Reed-Solomon codes."""

from collections.abc import Sequence
from typing import Any

import flint


def field(prime: int) -> Any:
    """Return FLINT's ring of polynomials over the integers modulo a prime."""
    return flint.fmpz_mod_poly_ctx(flint.fmpz_mod_ctx(int(prime)))


def values(ring: Any, coefficients: Sequence[int], points: Sequence[int]) -> list[int]:
    """Evaluate a polynomial.

    Args:
        ring: see `field`.
        coefficients: lowest first.
        points: integers.
    """
    return [int(value) for value in ring(list(map(int, coefficients))).multipoint_evaluate(list(map(int, points)))]


def vanishing(ring: Any, points: Sequence[int]) -> Any:
    """Return the product of all x - point."""
    product = ring([1])
    for point in points:
        product *= ring([-int(point), 1])
    return product


def interpolated(ring: Any, points: Sequence[int], ordinates: Sequence[int]) -> Any:
    """Return Lagrange's polynomial of degree below the number of points.

    Args:
        ring: see `field`.
        points: distinct.
        ordinates: value at each point.
    """
    whole = vanishing(ring, points)
    slopes = whole.derivative().multipoint_evaluate(list(map(int, points)))
    total = ring([0])
    for point, slope, ordinate in zip(points, slopes, ordinates, strict=True):
        total += whole.exact_division(ring([-int(point), 1])) * (int(ordinate) / slope)
    return total


def decoded(ring: Any, points: Sequence[int], received: Sequence[int], threshold: int) -> list[int] | None:
    """Return the indices of wrong values by the extended Euclidean algorithm; None if too many values are wrong.

    Args:
        ring: see `field`.
        points: distinct.
        received: values, of which at most (m - t) / 2 are wrong.
        threshold: t, number of coefficients of the polynomial.

    Source:
        Gao, A New Algorithm for Decoding Reed-Solomon Codes, 2003.
    """
    above, here = vanishing(ring, points), interpolated(ring, points, received)
    factor_above, factor = ring([0]), ring([1])
    while 2 * here.degree() >= len(points) + threshold:
        quotient, rest = divmod(above, here)
        above, here = here, rest
        factor_above, factor = factor, factor_above - quotient * factor
    polynomial, rest = divmod(here, factor)
    if rest != ring([0]) or polynomial.degree() >= threshold:
        return None
    sent = [int(value) for value in polynomial.multipoint_evaluate(list(map(int, points)))]
    wrong = [place for place, (left, right) in enumerate(zip(sent, received, strict=True)) if left != int(right)]
    return wrong if 2 * len(wrong) <= len(points) - threshold else None
