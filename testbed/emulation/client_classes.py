"""Classes of clients: kinds of clients, e.g. phones on 4G, whose links and devices belong together.

Shares become exact counts (largest remainder), and who is in which class is drawn once per experiment. A client's
values depend on the seed, its number, and what its own class says: they are what it would have if all clients were of
that class. So another class, or another share, changes nothing for those who stay in theirs; and classes' order in the
experiment does not matter.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from testbed.emulation.devices import Devices, Factor
from testbed.emulation.links.section import (
    BufferSetting,
    DelaySetting,
    FollowedDelay,
    FollowedShare,
    Links,
    Outages,
    RateSetting,
    ShareSetting,
)

MOST_CLASSES = 1000
_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}"
_NEARLY = Fraction(1, 10**6)  # by which shares may miss 1, written in decimals
_ROUNDING = Fraction(1, 10**12)  # by which they may, so that nothing is left for a class without one


def _key(description: str) -> Any:
    """A key that may be left out, and then is not in the resolved experiment either."""
    return Field(None, exclude_if=lambda value: value is None, description=description)


class ClientClass(BaseModel):
    """A class of clients. What it does not say of its links and devices is as `links` and `devices` say."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    share: Annotated[float, Field(ge=0, le=1)] | None = _key(
        "Share of the population; shares sum to 1, and one class may leave it out: it is the rest"
    )
    down_mbit_s: RateSetting | None = _key("Downlink in Mbit/s, as in `links`")
    up_mbit_s: RateSetting | None = _key("Uplink in Mbit/s, as in `links`")
    latency_ms: DelaySetting | None = _key("One-way delay in ms, as in `links`")
    loss: ShareSetting | None = _key("Probability that a packet is lost, as in `links`")
    buffer_ms: BufferSetting | None = _key("Queue in front of a link in ms, as in `links`")
    outages: Outages | None = _key("Loss of connectivity, as in `links`")
    device: (
        Annotated[
            Annotated[Factor, Tag("a factor")] | Annotated[Devices, Tag("a section")],
            Discriminator(lambda value: "a section" if isinstance(value, dict | Devices) else "a factor"),
        ]
        | None
    ) = _key("Compute time relative to the reference machine: a factor, or a mapping with the keys of `devices`")

    @property
    def link_settings(self) -> dict[str, Any]:
        """The keys of `links` that are given here, and their values."""
        return {name: value for name, value in self if name not in ("share", "device") and value is not None}

    @property
    def devices(self) -> Devices | None:
        """Its own `devices` section; None: as all others."""
        return self.device if isinstance(self.device, Devices | None) else Devices(factor=self.device)


@dataclass(frozen=True, eq=False)
class ClassMembers:
    """Who is in which class.

    Attributes:
        names: of the classes, sorted.
        class_of: `(n,)` int16, each client's class by its position in `names`.
    """

    names: tuple[str, ...]
    class_of: npt.NDArray[np.int16]

    def are_in(self, name: str) -> npt.NDArray[np.bool_]:
        """`(n,)` whether each client is in this class."""
        return np.asarray(self.class_of == self.names.index(name))


def draw_members(classes: Mapping[str, ClientClass], population: int, generator: np.random.Generator) -> ClassMembers:
    """Put `population` clients into classes at random, as many into each as `class_counts` says."""
    counts = class_counts(classes, population)
    class_of = np.empty(population, np.int16)
    class_of[generator.permutation(population)] = np.repeat(np.arange(len(counts)), list(counts.values()))
    return ClassMembers(tuple(counts), class_of)


def class_counts(classes: Mapping[str, ClientClass], population: int) -> dict[str, int]:
    """How many clients each class has, sorted by name: its share of the population, by largest remainders.

    Raises:
        ValueError: the shares do not sum to 1, two classes have none, or one has so small a share that nobody is in it.
    """
    shares = _shares(classes)
    exact = {name: share * population for name, share in shares.items()}
    counts = {name: int(quota) for name, quota in exact.items()}
    remaining = population - sum(counts.values())
    for name in sorted(exact, key=lambda name: (counts[name] - exact[name], name))[:remaining]:
        counts[name] += 1
    for name, count in counts.items():
        if shares[name] and not count:
            raise ValueError(
                f"{name}.share: {float(shares[name]):g} of {population} clients is nobody; give the class more, or 0"
            )
    return counts


def _shares(classes: Mapping[str, ClientClass]) -> dict[str, Fraction]:
    """The shares as decimals say them, sorted by name; they sum to 1."""
    stated = {
        name: Fraction(str(settings.share)) for name, settings in sorted(classes.items()) if settings.share is not None
    }
    unstated = [name for name in classes if name not in stated]
    total = sum(stated.values(), Fraction(0))
    if len(unstated) > 1:
        raise ValueError(f"{unstated[1]}.share: is required; one class alone may be the rest, and {unstated[0]} is")
    if unstated and total < 1 - _ROUNDING:
        return dict(sorted({**stated, unstated[0]: 1 - total}.items()))
    if abs(total - 1) > (_ROUNDING if unstated else _NEARLY):
        last = list(stated)[-1]
        raise ValueError(
            f"{last}.share: the shares of the classes sum to {float(total):g}, and must sum to 1; one of them may be "
            "left out, and is the rest"
        )
    scaled = {name: share / total for name, share in stated.items()}
    return dict(sorted({**scaled, **dict.fromkeys(unstated, Fraction(0))}.items()))


def check_classes(classes: Mapping[str, ClientClass], links: Links, population: int) -> None:
    """Raise `ValueError`, beginning with a class's name, for classes that cannot be, or not beside `links`."""
    for name, client_class in classes.items():
        if not re.fullmatch(_NAME, name):
            raise ValueError(f"{name!r}: no name for a class; letters, digits, - and _ are allowed, e.g. phone-4g")
        settings = client_class.link_settings
        if settings and links.model is not None:
            raise ValueError(
                f"{name}.{next(iter(settings))}: links.model, a user-defined class, says what all links are like; "
                "leave out one of the two"
            )
        try:
            own = links.with_settings(settings)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        for key, values in (("latency_ms", (links.latency_ms, own.latency_ms)), ("loss", (links.loss, own.loss))):
            if key in settings and any(isinstance(value, FollowedDelay | FollowedShare) for value in values):
                raise ValueError(f"{name}.{key}: cannot follow a trace, nor be set beside one in `links`; give numbers")
    if classes:
        class_counts(classes, population)
