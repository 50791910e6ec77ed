"""Colours and hatches of the stages of a round: a hue and a hatch for each protocol, light to dark within a protocol.

The look of a stage never depends on the other stages of a figure, as long as the protocol is built in. A user's own
protocol takes a hue and a hatch that no built-in protocol of the same figure has.
"""

import colorsys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, count
from zlib import crc32

from matplotlib.colors import to_hex, to_rgb

_NO_HATCH = ""


@dataclass(frozen=True)
class StageLook:
    """The look of a stage: a colour, and a hatch for readers who do not see the hue.

    Attributes:
        colour: as ``#rrggbb``.
        hatch: of matplotlib; empty: none.
    """

    colour: str
    hatch: str = _NO_HATCH

    @property
    def hatch_colour(self) -> str:
        """White on dark colours, else a dark grey."""
        red, green, blue = to_rgb(self.colour)
        return "#FFFFFF" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.45 else "#555555"


_SECAGG = {
    "secagg/advertise-keys": "#D4EEDD",
    "secagg/share-keys": "#9AD3B4",
    "secagg/masked-input": "#4DA982",
    "secagg/consistency": "#1B7F5C",
    "secagg/unmask": "#00452F",
    "secagg/unmask-survivors": "#0B6148",
    "secagg/prove-share": "#00251A",
}
_BUILT_IN: dict[str, StageLook] = {
    "check-in": StageLook("#ABABAB"),
    "batches/list": StageLook("#D9D29B", "||"),
    "batches/signatures": StageLook("#8C8230", "||"),
    "lotto/announce": StageLook("#FDD8A8"),
    "lotto/prove": StageLook("#FDBB84"),
    "lotto/participants": StageLook("#FC9F52"),
    "lotto/signatures": StageLook("#C44E00"),
    "committee/sortition": StageLook("#6E6E6E", "oo"),
    "train": StageLook("#2B83BA"),
    "plain/update": StageLook("#F0E442"),
    "dp-sgd/gradient": StageLook("#CC79A7"),
    **{stage: StageLook(colour) for stage, colour in _SECAGG.items()},
}


def _shades(light: str, dark: str, number: int) -> list[str]:
    """Return colours from light to dark, evenly spaced."""
    low, high = to_rgb(light), to_rgb(dark)
    steps = [step / max(1, number - 1) for step in range(number)]
    mixed = [[a + step * (b - a) for a, b in zip(low, high, strict=True)] for step in steps]
    return [to_hex((red, green, blue)) for red, green, blue in mixed]


def _family(light: str, dark: str, hatch: str, stages: Sequence[str]) -> dict[str, StageLook]:
    colours = _shades(light, dark, len(stages))
    return {stage: StageLook(colour, hatch) for stage, colour in zip(stages, colours, strict=True)}


_BUILT_IN |= _family(
    "#E4D9F2",
    "#4A1486",
    "////",
    ["lightsecagg/advertise-keys", "lightsecagg/share-masks", "lightsecagg/masked-input", "lightsecagg/sum-pieces"],
)
_BUILT_IN |= _family(
    "#FCE0EA",
    "#7A0140",
    "....",
    [
        "flamingo/set-up-deal",
        "flamingo/set-up-check",
        "flamingo/set-up-answer",
        "flamingo/set-up-finish",
        "flamingo/report",
        "flamingo/cross-check",
        "flamingo/reconstruct",
    ],
)
_BUILT_IN |= _family(
    "#FBF3A6",
    "#7A6400",
    "\\\\\\\\",
    ["one-shot/masked-input", "one-shot/open-shares", "one-shot/sign-survivors", "one-shot/sum-shares"],
)
_BUILT_IN |= _family(
    "#BFE6EE",
    "#00606E",
    "xxxx",
    ["pine/verify-key", "pine/report", "pine/prepare", "pine/aggregate-share"],
)
_BUILT_IN |= _family("#F7D9C8", "#7A2E1A", "||||", ["e-seafl/masked-input", "e-seafl/sum-masks"])
_SPARE = (
    ("#D6DCF5", "#1F2A7A", "----"),
    ("#F3E3C2", "#6B4E16", "|||"),
    ("#DFE6D0", "#3E5222", "++++"),
    ("#E6E6E6", "#404040", "OO"),
    ("#CFE8FC", "#0B4F8A", "**"),
)
_FEWEST_SHADES = 4
_GOLDEN_ANGLE = 0.382  # of the colour circle: neighbours of a long list differ


def stage_looks(names: Sequence[str]) -> dict[str, StageLook]:
    """Return the look of each stage; all of them differ.

    Args:
        names: of the stages, in their order; a user's own protocol has shades in this order.
    """
    families: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        if name not in _BUILT_IN:
            families.setdefault(name.partition("/")[0], []).append(name)
    own: dict[str, StageLook] = {}
    for family, (light, dark, hatch) in _own_families(list(families)).items():
        stages = families[family]
        colours = _shades(light, dark, max(len(stages), _FEWEST_SHADES))
        own |= {stage: StageLook(colour, hatch) for stage, colour in zip(stages, colours, strict=False)}
    return {name: _BUILT_IN.get(name) or own[name] for name in names}


def _own_families(names: Sequence[str]) -> dict[str, tuple[str, str, str]]:
    """Light, dark and hatch of each of a user's protocols: by its name, unless another protocol has the same."""
    taken: dict[int, str] = {}
    for name in names:
        first = crc32(name.encode()) % len(_SPARE)  # hash() of a text differs from process to process
        around = [(first + step) % len(_SPARE) for step in range(len(_SPARE))]
        free = (place for place in chain(around, count(len(_SPARE))) if place not in taken)
        taken[next(free)] = name
    return {name: _spare(place) for place, name in taken.items()}


def _spare(place: int) -> tuple[str, str, str]:
    if place < len(_SPARE):
        return _SPARE[place]
    hue = place * _GOLDEN_ANGLE % 1
    light, dark = (to_hex(colorsys.hsv_to_rgb(hue, *look)) for look in ((0.25, 0.95), (0.9, 0.4)))
    return light, dark, _SPARE[place % len(_SPARE)][2] * (1 + place // len(_SPARE) % 2)
