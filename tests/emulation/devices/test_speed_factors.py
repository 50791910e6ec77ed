"""Speed factors: the promised distribution of each model."""

import sys
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from testbed.emulation.devices import Devices, speed_factors, zipf_factors
from testbed.errors import ExperimentError
from tests.messages_named import naming


def drawn(section: Devices, population: int, seed: int = 1) -> np.ndarray:
    return speed_factors(section, population, np.random.default_rng(seed))


def test_every_client_is_the_reference_machine_by_default() -> None:
    assert drawn(Devices(), 4).tolist() == [1.0] * 4
    assert drawn(Devices(model="constant", factor=2.5), 2).tolist() == [2.5, 2.5]


def test_uniform_fills_its_range() -> None:
    factors = drawn(Devices(model="uniform", fastest=2, slowest=6), 20_000)
    assert 2 <= factors.min() < 2.01
    assert 5.99 < factors.max() <= 6
    assert abs(factors.mean() - 4) < 0.05


def test_zipf_in_numbers() -> None:
    # 1/k^2 for k = 1..3 is 36/36, 9/36, 4/36; onto [1, 9]: 1 + 8 (9 - 4)/(36 - 4) in the middle.
    np.testing.assert_allclose(zipf_factors(3, 1, 9, 2), [9, 2.25, 1])


@given(
    st.integers(2, 300),
    st.floats(0.1, 10),
    st.floats(0, 50),
    st.floats(0.1, 4),
    st.integers(0, 2**32),
)
def test_zipf_ranks_are_a_permutation_of_the_law(
    population: int, fastest: float, spread: float, exponent: float, seed: int
) -> None:
    section = Devices(model="zipf", fastest=fastest, slowest=fastest + spread, exponent=exponent)
    factors = np.sort(drawn(section, population, seed))[::-1]
    assert section.fastest == factors[-1] <= factors[0] <= section.slowest
    # Undoing the rescaling gives k^-a back.
    k = np.arange(1, population + 1) ** -exponent
    expected = fastest + spread * (k - k[-1]) / (k[0] - k[-1])
    np.testing.assert_allclose(factors, expected, rtol=1e-9)


def test_zipf_is_long_tailed_as_in_lotto() -> None:
    factors = drawn(Devices(model="zipf"), 1000)
    assert (factors < 2).mean() > 0.9
    assert factors.max() == 10


def test_a_population_of_one_is_the_slowest() -> None:
    assert drawn(Devices(model="zipf", slowest=7), 1).tolist() == [7.0]
    assert drawn(Devices(model="zipf"), 0).shape == (0,)


@pytest.mark.parametrize("model", ["uniform", "zipf"])
def test_the_seed_decides(model: str) -> None:
    section = Devices(model=model)
    assert drawn(section, 50, 3).tobytes() == drawn(section, 50, 3).tobytes()
    assert drawn(section, 50, 3).tobytes() != drawn(section, 50, 4).tobytes()


def test_slowest_below_fastest_is_one_clear_error() -> None:
    with pytest.raises(ValidationError, match=naming("`slowest` (1)", "`fastest` (2)")) as caught:
        Devices(model="zipf", fastest=2, slowest=1)
    assert caught.value.error_count() == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"model": "zip"},
        {"model": "pkg.mod:"},
        {"factor": 0},
        {"fastest": -1},
        {"slowest": float("inf")},
        {"exponent": float("nan")},
        {"exponent": 0},
        {"speed": 3},
    ],
)
def test_wrong_keys_and_values_are_refused_one_by_one(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as caught:
        Devices.model_validate(wrong)
    assert caught.value.error_count() == 1


def test_a_class_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class TwoKinds:
        def __init__(self, section: Devices, slow_share: float) -> None:
            self.slow_share = slow_share
            self.slowest = section.slowest

        def speed_factors(self, population: int, generator: np.random.Generator) -> np.ndarray:
            return np.where(generator.random(population) < self.slow_share, self.slowest, 1)

    class Broken(TwoKinds):
        def speed_factors(self, population: int, generator: np.random.Generator) -> np.ndarray:
            return np.zeros(population)

    module = ModuleType("phones")
    module.TwoKinds, module.Broken = TwoKinds, Broken  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "phones", module)
    factors = drawn(Devices(model="phones:TwoKinds", slowest=4, options={"slow_share": 0.3}), 2000)
    assert set(factors.tolist()) == {1.0, 4.0}
    assert 0.25 < (factors == 4).mean() < 0.35
    for name, complaint in (
        ("phones:Broken", "2 positive finite factors"),
        ("phones:Tablets", "phones has no class Tablets"),
        ("no_such_phones:X", "no module 'no_such_phones'"),
    ):
        with pytest.raises(ExperimentError, match=complaint):
            drawn(Devices(model=name, options={"slow_share": 0.3}), 2)
