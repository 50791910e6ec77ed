"""Configurations of gradients: integrals against explicit densities, derivatives, and the reductions of the search."""

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import identity
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.bounds import random_participation_composed as many
from analysis.bounds.gradient_configurations import GradientConfiguration, OtherRounds, round_delta, used_samples
from analysis.bounds.pair_search import angled_configuration
from analysis.bounds.random_participation import Participation
from tests.analysis.bounds.configurations_by_quadrature import densities, divergence, unit_vectors
from tests.thoroughness import examples

ANGLES = st.lists(st.floats(0, 6.28), min_size=2, max_size=4)


def one_round(epsilon: float) -> OtherRounds:
    return OtherRounds.alike(identity(), 1, epsilon)


@settings(deadline=None, max_examples=examples(30))
@given(ANGLES, st.floats(0.05, 0.9), st.floats(0.05, 0.9), st.floats(0.6, 2), st.floats(0.05, 1))
def test_delta_of_one_round_is_the_divergence_of_explicit_densities(
    angles: list[float], p: float, q: float, sigma: float, epsilon: float
) -> None:
    gradients = unit_vectors(np.array(angles))
    who = Participation(len(angles) - 1, p, q)
    configuration = GradientConfiguration((1,) * who.local_samples, gradients)
    found, _ = round_delta(configuration, who, sigma, one_round(epsilon), 0.05)
    expected = divergence(*densities(who, sigma, gradients[:-1], gradients[-1]), epsilon)
    assert found == pytest.approx(expected, rel=5e-3, abs=3e-5)


@pytest.mark.parametrize(("sizes", "dimensions", "step"), [((3,), 2, 0.3), ((1, 2), 3, 0.5), ((2, 1, 2), 3, 0.5)])
def test_derivatives_are_differences(sizes: tuple[int, ...], dimensions: int, step: float) -> None:
    who, sigma = Participation(sum(sizes), 0.1, 0.3), 1.0
    others = OtherRounds.alike(many.angled_pair(who, sigma, 0.2, 1e-3), 20, 1.0)
    gradients = np.random.default_rng(5).normal(size=(len(sizes) + 1, dimensions))
    gradients /= np.linalg.norm(gradients, axis=1, keepdims=True)
    _, derivatives = round_delta(GradientConfiguration(sizes, gradients), who, sigma, others, step)
    for place in np.ndindex(*gradients.shape):
        nudge = np.zeros_like(gradients)
        nudge[place] = 1e-4
        ends = [
            round_delta(GradientConfiguration(sizes, gradients + sign * nudge), who, sigma, others, step)[0]
            for sign in (1, -1)
        ]
        assert (ends[0] - ends[1]) / 2e-4 == pytest.approx(
            derivatives[place], rel=0.03, abs=2e-2 * abs(derivatives).max()
        )


@settings(deadline=None, max_examples=examples(30))
@given(ANGLES, st.lists(st.floats(0, 1), min_size=4, max_size=4), st.floats(0.05, 0.9), st.floats(0.05, 0.9))
def test_longer_gradients_with_the_same_inner_products_lose_more(
    angles: list[float], norms: list[float], p: float, q: float
) -> None:
    """Shorter gradients in the plane; lengthened in further dimensions, and projected on the plane, they are these."""
    who = Participation(len(angles) - 1, p, q)
    short = unit_vectors(np.array(angles)) * np.array(norms[: len(angles)])[:, None]
    missing = np.sqrt(np.maximum(0, 1 - np.array(norms[: len(angles)]) ** 2))
    long = np.hstack([short, np.diag(missing)])
    assert long @ long.T == pytest.approx(short @ short.T + np.diag(missing**2))
    # One dimension for each lengthened gradient is too many for a grid; lengthen x' alone.
    lengthened = np.hstack([short, np.zeros((len(short), 1))])
    lengthened[-1, 2] = missing[-1]
    for epsilon in (0.02, 0.3):
        less, _ = round_delta(GradientConfiguration((1,) * who.local_samples, short), who, 1.0, one_round(epsilon), 0.1)
        more, _ = round_delta(
            GradientConfiguration((1,) * who.local_samples, lengthened), who, 1.0, one_round(epsilon), 0.25
        )
        assert less <= more + 5e-4


def test_the_delta_of_all_rounds_is_that_of_composition() -> None:
    who, sigma, rounds, epsilon = Participation(10, 0.05, 0.2), 1.0, 30, 1.0
    loss = many.angled_pair(who, sigma, 0.3)
    others = OtherRounds.alike(loss, rounds, epsilon)
    found, _ = round_delta(angled_configuration(who, 0.3), who, sigma, others, 0.1)
    assert found == pytest.approx(loss.self_compose(rounds).get_delta_for_epsilon(epsilon), rel=3e-3)


def test_cells_in_the_plane_and_in_space_are_those_of_the_angled_pair() -> None:
    who, sigma = Participation(10, 0.05, 0.2), 1.0
    expected = many.angled_pair(who, sigma, 0.3).self_compose(30).get_epsilon_for_delta(1e-6)
    plane = angled_configuration(who, 0.3)
    turned, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))
    space = GradientConfiguration(plane.sizes, np.pad(plane.gradients, ((0, 0), (0, 1))) @ turned)
    for configuration, accuracy in ((plane, 1e-3), (space, 1e-2)):
        found = many.configured_pair(configuration, who, sigma).self_compose(30).get_epsilon_for_delta(1e-6)
        assert expected * (1 - accuracy) < found < expected * (1 + 1e-4)  # cells lose information


def test_probabilities_of_groups_are_those_of_all_samples() -> None:
    counts, weights = used_samples((4, 6), 0.3)
    assert weights.sum() == pytest.approx(1, abs=1e-6)
    assert weights @ counts == pytest.approx([1.2, 1.8], rel=1e-5)
