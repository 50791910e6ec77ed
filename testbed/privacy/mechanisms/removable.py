"""More noise than planned, of which the server can take away what drop-outs did not cost: Jiang, Wang, Chen, Dordis:
Efficient Federated Learning with Dropout-Resilient Differential Privacy, EuroSys 2024, arXiv 2209.12528 (XNoise).

To keep the planned variance v of a sum over s participants when up to T of them drop out, each adds components
0, 1, ..., T of independent Skellam noise with the variances

    v / s,    and    v / ((s - k + 1)(s - k)) = v / (s - k) - v / (s - k + 1)    for k = 1, ..., T,

so that the first j + 1 of them have v / (s - j) together. When s - j are left, the server takes the components after
the j-th away from each of them, and (s - j) v / (s - j) = v remains: exactly, since Skellam noise adds up.

The components' seeds are a chain: a secret gives its component's seed and, by another hash, the next secret. Who is
given the (j+1)-th secret can compute all components that are to go, and none that is to stay.
"""

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from testbed.crypto import prf

MOST_TOLERATED = 1000

_SEED, _NEXT = b"testbed/xnoise/seed/v1", b"testbed/xnoise/next/v1"


class Enforcement(BaseModel):
    """The planned noise is kept when participants drop out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tolerated_dropouts: int = Field(
        ...,
        ge=1,
        le=MOST_TOLERATED,
        description="T: participants that may drop out before their input arrives without any of the planned noise "
        "missing; each participant adds T more noise vectors",
    )


@dataclass(frozen=True)
class RemovableNoise:
    """How the noise of one sum is made up.

    Attributes:
        participants: s, who plan to take part.
        tolerated: T, below s.
    """

    participants: int
    tolerated: int

    def __post_init__(self) -> None:
        if not 0 <= self.tolerated < self.participants:
            raise ValueError(f"tolerated_dropouts: {self.tolerated} of {self.participants} participants; fewer must be")

    def part(self, component: int) -> float:
        """A component's variance, as a part of the planned variance of the sum."""
        if component == 0:
            return 1 / self.participants
        before = self.participants - component + 1
        return 1 / (before * (before - 1))

    @property
    def added(self) -> float:
        """The variance of everything that one participant adds, as a part of that of the sum."""
        return 1 / (self.participants - self.tolerated)

    def first_removed(self, left: int) -> int | None:
        """The first component to be taken away when so many are left; None where all stay."""
        first = self.participants - left + 1
        return first if first <= self.tolerated else None

    def kept(self, left: int) -> float:
        """The variance in the sum when so many are left, once the rest is taken away: 1.0 up to T drop-outs."""
        dropouts = self.participants - left
        return 1.0 if dropouts <= self.tolerated else left * self.added


def chain(secret: bytes, length: int) -> list[bytes]:
    """`length` secrets, this one first; each gives those after it, and nothing about those before it."""
    secrets = [secret]
    while len(secrets) < length:
        secrets.append(prf.evaluate(secrets[-1], _NEXT))
    return secrets[:length]


def seed_of(secret: bytes) -> bytes:
    """The seed of the component that a secret of the chain stands for."""
    return prf.evaluate(secret, _SEED)
