"""Classes of clients, such as phones on 4G, with their own links and devices.

Shares become exact counts (largest remainder). The members of each class are drawn once per experiment. The values of a
client depend on the seed, the client's number and the settings of its class alone: they are the values that the client
would have if all clients were of that class. Another class, or another share, therefore changes nothing for clients
that stay in their class, and the order of the classes in the experiment does not matter.
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
_NEARLY = Fraction(1, 10**6)  # tolerance for shares in decimals that should sum to 1
_ROUNDING = Fraction(1, 10**12)  # tolerance where one class has the rest, which is then nothing


def _key(description: str) -> Any:
    """Return the field of an optional key, which stays out of the resolved experiment when it is not set."""
    return Field(None, exclude_if=lambda value: value is None, description=description)


class ClientClass(BaseModel):
    """A class of clients; settings that the class leaves out come from `links` and `devices`."""

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
        """Keys of `links` that this class sets, with their values."""
        return {name: value for name, value in self if name not in ("share", "device") and value is not None}

    @property
    def devices(self) -> Devices | None:
        """The class's own `devices` section; None if clients of the class have the common one."""
        return self.device if isinstance(self.device, Devices | None) else Devices(factor=self.device)


@dataclass(frozen=True, eq=False)
class ClassMembers:
    """The class of each client.

    Attributes:
        names: names of the classes, sorted.
        class_of: `(n,)` int16, each client's class by its position in `names`.
    """

    names: tuple[str, ...]
    class_of: npt.NDArray[np.int16]

    def are_in(self, name: str) -> npt.NDArray[np.bool_]:
        """Return `(n,)` booleans: whether each client is in the class `name`."""
        return np.asarray(self.class_of == self.names.index(name))


def draw_members(classes: Mapping[str, ClientClass], population: int, generator: np.random.Generator) -> ClassMembers:
    """Assign clients to classes at random.

    Args:
        classes: the classes by name.
        population: number of clients n.
        generator: for simulation; the same state gives the same assignment.

    Returns:
        The members; each class has as many as `class_counts` returns.

    Raises:
        ValueError: as `class_counts`.
    """
    counts = class_counts(classes, population)
    class_of = np.empty(population, np.int16)
    class_of[generator.permutation(population)] = np.repeat(np.arange(len(counts)), list(counts.values()))
    return ClassMembers(tuple(counts), class_of)


def class_counts(classes: Mapping[str, ClientClass], population: int) -> dict[str, int]:
    """Return the number of clients in each class: its share of the population, by largest remainders.

    Args:
        classes: the classes by name.
        population: number of clients n.

    Returns:
        The number of clients by class name, sorted by name; the numbers sum to n.

    Raises:
        ValueError: the shares do not sum to 1, two classes leave out their share, or a share is too small for one
            client.

    Example:
        >>> class_counts({"phone": ClientClass(share=0.7), "laptop": ClientClass()}, 10)
        {'laptop': 3, 'phone': 7}
    """
    shares = _shares(classes)
    exact = {name: share * population for name, share in shares.items()}
    counts = {name: int(quota) for name, quota in exact.items()}
    remaining = population - sum(counts.values())
    # The largest remainders; names break ties, so that the order of the classes does not matter.
    for name in sorted(exact, key=lambda name: (counts[name] - exact[name], name))[:remaining]:
        counts[name] += 1
    for name, count in counts.items():
        if shares[name] and not count:
            raise ValueError(
                f"{name}.share: {float(shares[name]):g} of {population} clients is less than one client; raise the "
                "share, or set it to 0"
            )
    return counts


def _shares(classes: Mapping[str, ClientClass]) -> dict[str, Fraction]:
    """Return the exact decimal shares of all classes, sorted by name; they sum to 1."""
    # As decimals: 0.1 + 0.2 + 0.7 must be exactly 1.
    stated = {
        name: Fraction(str(settings.share)) for name, settings in sorted(classes.items()) if settings.share is not None
    }
    unstated = [name for name in classes if name not in stated]
    total = sum(stated.values(), Fraction(0))
    if len(unstated) > 1:
        raise ValueError(f"{unstated[1]}.share: is required; only one class can have the rest, here {unstated[0]}")
    if unstated and total < 1 - _ROUNDING:
        return dict(sorted({**stated, unstated[0]: 1 - total}.items()))
    if abs(total - 1) > (_ROUNDING if unstated else _NEARLY):
        last = list(stated)[-1]
        raise ValueError(
            f"{last}.share: the shares of the classes sum to {float(total):g}, and must sum to 1; one class may leave "
            "out its share and then has the rest"
        )
    scaled = {name: share / total for name, share in stated.items()}
    return dict(sorted({**scaled, **dict.fromkeys(unstated, Fraction(0))}.items()))


def check_classes(classes: Mapping[str, ClientClass], links: Links, population: int) -> None:
    """Check that the classes are well-formed and fit the `links` section.

    Args:
        classes: the classes by name.
        links: the experiment's `links` section.
        population: number of clients n.

    Raises:
        ValueError: a message that begins with the name of the class at fault.
    """
    for name, client_class in classes.items():
        if not re.fullmatch(_NAME, name):
            raise ValueError(f"{name!r}: not a class name; letters, digits, - and _ are allowed, e.g. phone-4g")
        settings = client_class.link_settings
        if settings and links.model is not None:
            raise ValueError(
                f"{name}.{next(iter(settings))}: links.model, a user-defined class, sets the links of all clients; "
                "leave out one of the two"
            )
        try:
            own = links.with_settings(settings)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        for key, values in (("latency_ms", (links.latency_ms, own.latency_ms)), ("loss", (links.loss, own.loss))):
            if key in settings and any(isinstance(value, FollowedDelay | FollowedShare) for value in values):
                raise ValueError(f"{name}.{key}: traces are allowed only in `links`, for all clients; give numbers")
    if classes:
        class_counts(classes, population)
