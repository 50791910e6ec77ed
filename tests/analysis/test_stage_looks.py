"""Every stage of every built-in protocol has a look of its own, also for readers who do not see all hues."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from analysis.figures.swept import key_title
from analysis.stage_looks import StageLook, stage_looks
from testbed.aggregation.catalogue import PROTOCOLS as AGGREGATIONS
from testbed.selection.catalogue import PROTOCOLS as SELECTIONS

# Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
VISION = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}
TO_CONES = [
    [0.41222147, 0.53633254, 0.05144599],
    [0.2119035, 0.6806995, 0.10739696],
    [0.08830246, 0.28171884, 0.629979],
]
TO_LAB = [
    [0.21045426, 0.79361779, -0.00407205],
    [1.9779985, -2.4285922, 0.45059371],
    [0.02590404, 0.78277177, -0.80867577],
]


def oklab(look: StageLook, vision: str) -> np.ndarray:
    """The colour as somebody with that vision sees it; distances below 0.02 are hardly seen."""
    rgb = np.array(to_rgb(look.colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.asarray(VISION[vision]) @ linear, 0, 1)
    return np.asarray(TO_LAB) @ np.cbrt(np.asarray(TO_CONES) @ seen)


def built_in() -> list[str]:
    parameters: list[Any] = [*SELECTIONS, *AGGREGATIONS]
    stages = [stage for each in parameters for stage in (*each.stages, *each.further_stages)]
    return list(dict.fromkeys(["train", *stages]))


@pytest.mark.parametrize("vision", VISION)
def test_stages_of_built_in_protocols_are_told_apart(vision: str) -> None:
    looks = stage_looks(built_in())
    assert len(looks) > 25
    for (one, first), (two, second) in combinations(looks.items(), 2):
        assert first != second, (one, two)
        if first.hatch == second.hatch:
            assert np.linalg.norm(oklab(first, vision) - oklab(second, vision)) > 0.04, (one, two)


def test_a_built_in_stage_looks_the_same_in_every_figure() -> None:
    every = stage_looks(built_in())
    assert {stage: stage_looks([stage])[stage] for stage in every} == every


def test_stages_of_ones_own_protocols_differ_from_all_others() -> None:
    own = [f"protocol-{number}/{stage}" for number in range(9) for stage in ("ask", "answer", "sum")]
    looks = list(stage_looks([*built_in(), *own]).values())
    assert len(set(looks)) == len(looks)
    assert len({look.colour for look in looks}) == len(looks)


@pytest.mark.parametrize(
    ("key", "title"),
    [
        ("links.up_mbit_s", "Links up [Mbit/s]"),
        ("time.deadline_s", "Time deadline [s]"),
        ("selection.participants", "Participants"),
        ("selection.protocol", "Selection protocol"),
        ("availability.dropout.rate", "Dropout rate"),
        ("aggregation.noise.noise_multiplier", "Noise multiplier"),
        ("population", "Population"),
    ],
)
def test_axes_name_keys_in_words_with_their_units(key: str, title: str) -> None:
    assert key_title(key) == title
