"""Compared protocols, oldest first, each with its parameters; rows, figures and surveys follow from the entries."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal

from testbed.committee.parameters import OVER_SELECTION

MEMBERS = 60
"""Members of a committee, if there are as many participants: the size in the evaluation of Ma et al."""

ASSISTING_NODES = 3
"""Assisting nodes of `e-seafl`, as in its paper."""

Server = Literal["sees every update", "follows the protocol", "malicious"]
"""Strongest server against which a paper claims that updates stay hidden."""


@dataclass(frozen=True)
class ProtocolSetting:
    """Setting for which a protocol is set up.

    Attributes:
        participants: n, participants of a round.
        lost: number of participants that shall be tolerated to be lost; some protocols tolerate fewer.
        corruption: share of the participants that may work for the server.
        online: share of all clients that is online at a time.
    """

    participants: int
    lost: int
    corruption: float
    online: float = 1.0

    @property
    def corrupted(self) -> int:
        """Number of corrupted participants, rounded down."""
        return int(self.corruption * self.participants)


@dataclass(frozen=True)
class ComparedProtocol:
    """One row of the comparison: a protocol with one choice of parameters.

    Attributes:
        name: name of the row.
        protocol: name of the protocol in experiments.
        source: the paper.
        upload: stage in which clients send their (masked) update; stages before it are set-up, stages after it
            recovery.
        server: strongest server against which the paper claims that updates stay hidden.
        hidden_from: parties from which updates stay hidden, as text with the number of colluding clients as ``{}``.
        workers: parties that work in a round beside its clients and the server, as text with their number as ``{}``.
        options: function from a setting to the keys of the section `aggregation` beside `protocol`.
        helpers: clients beside the participants that work for the protocol and never drop out.
        chooses_bits: whether the section has a key `bits`.
        session: "once" if a set-up in the first round serves later rounds, "each round" if later rounds hand it over;
            else empty.
        one_seed: whether one seed is run: a round takes long to emulate, and its times have no random part.
        only: conditions that the row has (values of `Condition.varied`); empty: all.
    """

    name: str
    protocol: str
    source: str
    upload: str
    server: Server
    hidden_from: str
    workers: str
    options: Callable[[ProtocolSetting], Mapping[str, Any]] = lambda setting: {}
    helpers: int = 0
    chooses_bits: bool = True
    session: Literal["", "once", "each round"] = ""
    one_seed: bool = False
    only: frozenset[str] = frozenset()

    def section(self, setting: ProtocolSetting) -> dict[str, Any]:
        """Return the section `aggregation`."""
        return {"protocol": self.protocol, **self.options(setting)}

    @property
    def directory(self) -> str:
        """Name of the directory of its runs."""
        return "-".join("".join(letter if letter.isalnum() else " " for letter in self.name).split())

    def hidden_from_text(self, row: Mapping[str, Any]) -> str:
        """Return the parties from which updates stay hidden, for a row of the table."""
        colluders = row["T"] if self.server == "follows the protocol" else row["may collude"]
        return self.hidden_from.format(colluders)

    def workers_text(self, row: Mapping[str, Any]) -> str:
        """Return the parties that work beside the clients of a round and the server, for a row of the table."""
        return self.workers.format(int(row["serve"])) or "–"


def _least_safe_threshold(setting: ProtocolSetting) -> dict[str, Any]:
    """Return the least t with 2t - n above the corrupted (Bonawitz et al., Theorem 6.5)."""
    # Two contradictory statements about a client cannot both reach t signatures.
    return {"threshold": (setting.participants + setting.corrupted) // 2 + 1}


def _share_lost(setting: ProtocolSetting) -> float:
    """Return the share of the participants that may be lost, as a decimal fraction that gives this number again."""
    return ceil(1e6 * setting.lost / setting.participants) / 1e6


def _neighbourhoods(setting: ProtocolSetting) -> dict[str, Any]:
    return {"dishonest": setting.corruption, "dropouts": _share_lost(setting)}


def _coded(setting: ProtocolSetting) -> dict[str, Any]:
    """Return the largest U that tolerates the losses, which makes the shortest pieces, and T colluders."""
    survivors = setting.participants - setting.lost
    return {"threshold": max(2, survivors, setting.corrupted + 1), "max_colluders": setting.corrupted}


def _coded_as_published(setting: ProtocolSetting) -> dict[str, Any]:
    """Return U = 0.7 N and T = N / 2, as in the experiments of So et al."""
    return {"threshold": ceil(7 * setting.participants / 10), "max_colluders": setting.participants // 2}


def _committee(setting: ProtocolSetting) -> dict[str, Any]:
    """Return a committee of 60 members, as in Ma et al., or of all, with the smallest safe threshold.

    The threshold t of L members withstands all of the corrupted on the committee: 2t - L exceeds their number. If
    clients come and go, the committee is drawn by sortition from the clients that are online. Else it is named: the
    participants with the lowest numbers, so that losses of members can be drawn.
    """
    size = min(MEMBERS, setting.participants)
    section: dict[str, Any] = {"threshold": (size + _on_committee(setting)) // 2 + 1}
    if setting.online < 1:
        return {
            "size": size,
            **section,
            "selection": "lotto-client-centric",
            "over_selection": OVER_SELECTION / setting.online,
        }
    return {**section, "selection": "given", "members": list(range(size))}


def _on_committee(setting: ProtocolSetting) -> int:
    """Return the number of corrupted members, since all corrupted clients may be members."""
    return min(setting.corrupted, MEMBERS)


def _decryptors(setting: ProtocolSetting) -> dict[str, Any]:
    """Return one committee for all rounds, against a server that labels clients with the graph in view."""
    return {"committee": _committee(setting), "dishonest": setting.corruption, "dropouts": _share_lost(setting)}


def _decryptors_as_published(setting: ProtocolSetting) -> dict[str, Any]:
    return {**_decryptors(setting), "labels": "random"}


def _decryptors_of_one_round(setting: ProtocolSetting) -> dict[str, Any]:
    return {**_decryptors(setting), "committee": {**_committee(setting), "serves_rounds": 1}}


def _one_committee_a_round(setting: ProtocolSetting) -> dict[str, Any]:
    """Return T corrupted members, and sums with all participants but the losses."""
    committee = _committee(setting)
    return {
        "committee": committee if setting.online == 1 else {**committee, "serves_rounds": 1},
        "max_colluders": max(1, _on_committee(setting)),
        "min_survivors": max(2, setting.participants - setting.lost),
    }


def _assisted(setting: ProtocolSetting) -> dict[str, Any]:
    """Return assisting nodes that are no participants."""
    first = setting.participants
    return {
        "assisting_nodes": list(range(first, first + ASSISTING_NODES)),
        "min_survivors": max(2, setting.participants - setting.lost),
    }


def _two_aggregators(setting: ProtocolSetting) -> dict[str, Any]:
    """Return a second aggregator that is no participant."""
    return {"helper": setting.participants, "min_survivors": max(2, setting.participants - setting.lost)}


_MA = "Ma et al., S&P 2023, arXiv 2308.09883"
_SO = "So et al., MLSys 2022, arXiv 2109.14236"

_BONAWITZ = "Bonawitz et al., CCS 2017, ePrint 2017/281"
_BELL = "Bell et al., CCS 2020, ePrint 2020/704"
_OPA = "Karthikeyan and Polychroniadou, CRYPTO 2025, arXiv 2410.22303"
_MALICIOUS = "a malicious server with {} clients"
_HONEST = "a server that follows the protocol, with {} clients"
_SOME = frozenset({"always on", "lost"})

PROTOCOLS = (
    ComparedProtocol(
        "plain", "plain", "McMahan et al., AISTATS 2017, arXiv 1602.05629", "plain/update", "sees every update",
        "nobody", "", chooses_bits=False,
    ),
    ComparedProtocol(
        "secagg", "secagg", _BONAWITZ, "secagg/masked-input", "malicious", _MALICIOUS, "", _least_safe_threshold,
    ),
    ComparedProtocol(
        "secagg-plus", "secagg-plus", _BELL, "secagg/masked-input", "malicious", _MALICIOUS, "", _neighbourhoods,
    ),
    ComparedProtocol(
        "lightsecagg", "lightsecagg", _SO, "lightsecagg/masked-input", "follows the protocol", _HONEST, "", _coded,
        chooses_bits=False,
    ),
    ComparedProtocol(
        "lightsecagg, U = 0.7 N, T = N/2", "lightsecagg", _SO, "lightsecagg/masked-input", "follows the protocol",
        _HONEST, "", _coded_as_published, chooses_bits=False, only=_SOME,
    ),
    ComparedProtocol(
        "flamingo", "flamingo", _MA, "flamingo/report", "malicious", _MALICIOUS,
        "a committee of {} clients, for many rounds", _decryptors, session="once",
    ),
    ComparedProtocol(
        "flamingo, the paper's graph", "flamingo", _MA, "flamingo/report", "malicious", _MALICIOUS,
        "a committee of {} clients, for many rounds", _decryptors_as_published, session="once", only=_SOME,
    ),
    ComparedProtocol(
        "flamingo, a committee a round", "flamingo", _MA, "flamingo/report", "malicious", _MALICIOUS,
        "a committee of {} clients, for one round", _decryptors_of_one_round, session="each round",
        only=frozenset({"always on", "phones"}),
    ),
    ComparedProtocol(
        "one-shot", "one-shot", _OPA, "one-shot/masked-input", "malicious", _MALICIOUS,
        "a committee of {} clients, for one round", _one_committee_a_round,
    ),
    ComparedProtocol(
        "e-seafl", "e-seafl", "Behnia et al., ACSAC 2024, arXiv 2304.03841", "e-seafl/masked-input", "malicious",
        "a malicious server with {} of 3 assisting nodes and any clients", "{} assisting nodes that must not fail",
        _assisted, helpers=ASSISTING_NODES,
        only=frozenset({"always on", "lost", "each leaves", "participants", "model", "corruption"}),
    ),
    ComparedProtocol(
        "pine", "pine", "Rothblum et al., USENIX Security 2024, arXiv 2311.10237", "pine/report", "malicious",
        "a malicious server, or a malicious second aggregator, but not both", "{} second aggregator that must not fail",
        _two_aggregators, helpers=1, chooses_bits=False, one_seed=True, only=_SOME,
    ),
)  # fmt: skip
