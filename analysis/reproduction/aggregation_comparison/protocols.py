"""Compared protocols, oldest first; rows, figures and surveys follow from the entries."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from testbed.committee.parameters import OVER_SELECTION

MEMBERS = 60
"""Members of a committee, if there are as many participants."""


@dataclass(frozen=True)
class ProtocolSetting:
    """Setting for which a protocol is set up.

    Attributes:
        participants: n, participants of a round.
        dropouts: share of the participants that may be lost.
        corruption: share of the participants that may work for the server.
        online: share of all clients that is online at a time.
    """

    participants: int
    dropouts: float
    corruption: float
    online: float = 1.0

    @property
    def corrupted(self) -> int:
        """Number of corrupted participants, rounded down."""
        return int(self.corruption * self.participants)


@dataclass(frozen=True)
class ComparedProtocol:
    """One protocol of the comparison.

    Attributes:
        protocol: name in experiments.
        source: the paper.
        upload: stage in which clients send their (masked) update; stages before it are set-up, stages after it
            recovery.
        options: function from a setting to the keys of the section `aggregation` beside `protocol`.
    """

    protocol: str
    source: str
    upload: str
    options: Callable[[ProtocolSetting], Mapping[str, Any]] = lambda setting: {}

    def section(self, setting: ProtocolSetting) -> dict[str, Any]:
        """Return the section `aggregation`."""
        return {"protocol": self.protocol, **self.options(setting)}


def _least_safe_threshold(setting: ProtocolSetting) -> dict[str, Any]:
    """Return the least t with 2t - n above the corrupted (Bonawitz et al., Theorem 6.5)."""
    # Two contradictory statements about a client cannot both reach t signatures.
    return {"threshold": (setting.participants + setting.corrupted) // 2 + 1}


def _survivors(setting: ProtocolSetting) -> int:
    """Return the number of participants without the dropouts, rounded up."""
    # Rounded first: a product a little above a whole number would become the next one.
    return ceil(round((1 - setting.dropouts) * setting.participants, 6))


def _coded(setting: ProtocolSetting) -> dict[str, Any]:
    """Return U (survivors) and T (colluders), with T below U."""
    survivors = _survivors(setting)
    return {"threshold": max(2, survivors, setting.corrupted + 1), "max_colluders": setting.corrupted}


def _committee(setting: ProtocolSetting) -> dict[str, Any]:
    """Return a committee of 60 members, as in Ma et al., or of all, with the smallest safe threshold.

    The threshold t of L members withstands all of the corrupted on the committee: 2t - L exceeds their number. If
    clients come and go, the committee is drawn by sortition from the clients that are online.
    """
    size = min(MEMBERS, setting.participants)
    section: dict[str, Any] = {"size": size, "threshold": (size + _on_committee(setting)) // 2 + 1}
    if setting.online < 1:
        section |= {"selection": "lotto-client-centric", "over_selection": OVER_SELECTION / setting.online}
    return section


def _on_committee(setting: ProtocolSetting) -> int:
    """Return the number of corrupted members, since all corrupted clients may be members."""
    return min(setting.corrupted, MEMBERS)


def _decryptors(setting: ProtocolSetting) -> dict[str, Any]:
    """Return one committee for all rounds."""
    return {"committee": _committee(setting), "dishonest": setting.corruption, "dropouts": setting.dropouts}


def _one_committee_a_round(setting: ProtocolSetting) -> dict[str, Any]:
    """Return T corrupted members, and sums with all participants but the dropouts."""
    return {
        "committee": {**_committee(setting), "serves_rounds": 1},
        "max_colluders": max(1, _on_committee(setting)),
        "min_survivors": max(2, _survivors(setting)),
    }


PROTOCOLS = (
    ComparedProtocol("plain", "McMahan et al., AISTATS 2017, arXiv 1602.05629", "plain/update"),
    ComparedProtocol(
        "secagg", "Bonawitz et al., CCS 2017, ePrint 2017/281", "secagg/masked-input", _least_safe_threshold
    ),
    ComparedProtocol(
        "secagg-plus",
        "Bell et al., CCS 2020, ePrint 2020/704",
        "secagg/masked-input",
        lambda setting: {"dishonest": setting.corruption, "dropouts": setting.dropouts},
    ),
    ComparedProtocol("lightsecagg", "So et al., MLSys 2022, arXiv 2109.14236", "lightsecagg/masked-input", _coded),
    ComparedProtocol("flamingo", "Ma et al., S&P 2023, arXiv 2308.09883", "flamingo/report", _decryptors),
    ComparedProtocol(
        "one-shot",
        "Karthikeyan and Polychroniadou, CRYPTO 2025, arXiv 2410.22303",
        "one-shot/masked-input",
        _one_committee_a_round,
    ),
)
