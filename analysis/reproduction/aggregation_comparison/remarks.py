"""Remarks of the comparison: the task, the choices for each protocol, and the numbers that are computed."""

from collections.abc import Sequence

import pandas as pd

from analysis.reproduction.aggregation_comparison.completion import Tolerance
from analysis.reproduction.aggregation_comparison.conditions import (
    ALL_SEEDS_LINKS,
    CHANCE,
    CORRUPTION,
    EPOCHS,
    PHONE_LINKS,
    PHONES_A_PARTICIPANT,
    PHONES_LOST,
    USUAL_RATE,
)
from analysis.reproduction.aggregation_comparison.costs import (
    MULTI_SCALAR_SPEED_UP,
    ROUNDS_OF_A_SET_UP,
    first_of,
    selected,
)
from analysis.reproduction.aggregation_comparison.protocols import MEMBERS, PROTOCOLS
from analysis.reproduction.aggregation_comparison.withstood import PARTICIPANTS, RATES, ROUNDS, in_words
from analysis.reproduction.contract import Measurements


def remarks(measurements: Measurements, frame: pd.DataFrame) -> list[str]:
    """Return the remarks.

    Args:
        measurements: measurements of the comparison.
        frame: rows of the table.
    """
    setting = measurements.setting
    n, seeds = int(setting.sizes["participants"]), list(setting.seeds)
    phones = "; ".join(f"{name} {down:g}, {up:g}, {ms:g}" for name, (down, up, ms) in PHONE_LINKS.items())
    sources = "; ".join(dict.fromkeys(f"{compared.protocol}: {compared.source}" for compared in PROTOCOLS))
    return [
        f"Protocols and their papers: {sources}.",
        f"Task: the mean of the updates of {n} clients, weighted by their samples, in steps of 16 bits. Each protocol "
        f"has the fewest `bits` that it accepts. {CORRUPTION:.0%} of the participants are corrupted, unless this share "
        f"is varied. Each protocol tolerates the losses with which {CHANCE:.1%} of the rounds complete if each "
        f"participant leaves with the row's probability ({USUAL_RATE:.0%} where nobody leaves), or as many as it can. "
        f"On phones it tolerates {PHONES_LOST:.0%} losses.",
        f"Participants leave when they are asked for the masked update, as in the papers, and stay away for the round. "
        f"Seeds {_listed(seeds)}; ± is the 95% interval over seeds. One seed is run where neither losses nor links are "
        f"random, on phones with other links than {ALL_SEEDS_LINKS}, and for pine, as a round of it takes a minute to "
        "emulate.",
        "`lost`: exactly this number of participants leaves. All sets of this size are equally likely among those with "
        "which the round completes; `chance of a sum` is the share of these sets among all. `each leaves`: each "
        "participant leaves with this probability, independently. The chance is exact: a sum over binomial "
        "probabilities of losses among members of the committee and among the others. Sparse graphs may lack a "
        "neighbour or a connection with probability at most 2^-20, which is left out.",
        "The cost of a sum includes the ended rounds before it: (p C + (1 - p) A) / p, for a chance p, the cost C of a "
        "completed round and the cost A of an ended round. Both are measured with losses drawn from the independent "
        f"ones that complete, or end, a round. Where p is {CHANCE} or more, the cost is that of the expected number of "
        "losses.",
        "Compute is modelled on one core of the reference machine. Training is simulated: its time is charged and it "
        f"is not executed, which changes no time and no byte. {EPOCHS} epochs take about one second there.",
        "Stages follow each other; overlapping is not emulated. `round s (set-up while training)` is the other end, "
        "computed for every protocol: the round without the shorter of set-up and training. The truth is between the "
        "two, since the download of the model and the pieces share the link.",
        f"secagg and secagg-plus sign the survivors, against a malicious server: 2t - n exceeds {_corrupted(frame)}. "
        f"If the server follows the protocol, t above {_corrupted(frame)} is enough (Bonawitz et al., Theorem 6.3): "
        f"{_honest_loss(frame, n)}. Clients here insist on t above n/2, so that this is not run.",
        f"flamingo and one-shot have a committee of {MEMBERS} clients, as in Ma et al., or of all if there are fewer, "
        "with the least threshold that is safe if all corrupted clients are members. Members are participants, and "
        "leave like others. On phones the committee is drawn by sortition from the clients that are online; elsewhere "
        "it is named. flamingo's committee serves all rounds (in `a committee a round` it hands over in each). Rows "
        "are of a round without the set-up; `set-up once` is its addition to the first round, and `round s (share of "
        f"set-up)` spreads it over {ROUNDS_OF_A_SET_UP} rounds.",
        "flamingo's own graph withstands a server that labels clients offline with the graph in view; `the paper's "
        "graph` takes labels as independent of it (Lemma 1).",
        "`fast points` is computed, not measured: of the server's seconds for products of public points (by runs in "
        "which points cost nothing), L/3 + 1 of t remain (the paper's threshold for decryption; here one threshold "
        f"decrypts and signs), at {MULTI_SCALAR_SPEED_UP:g} times the speed, which Straus's method gains at most in "
        "curve25519-dalek (pull request 249). No package for Python that we know offers a sum of products of this "
        "group; libsodium multiplies in constant time, point by point.",
        "e-seafl and pine have helpers beside the participants, with a client's link and the reference device, that "
        "never leave: servers in the papers. So neither has rows on phones. pine checks the length of each update, "
        "too, and takes equal weights. e-seafl's proof of the sum is not implemented.",
        "Phases: the stages before the masked update, its own stage, and the stages after it. The server's work of a "
        "phase is its work after the end of one of the phase's stages. Elapsed seconds are the round's, by phase; a "
        "round also has selection, the broadcast of the model, and training. The busiest client is the one with the "
        "most work, or the most bytes, in the aggregation. Questions: the fewest to a participant.",
        f"Phones: {PHONES_A_PARTICIPANT} for each participant, a quarter of them online at a time (diurnal-weibull), "
        "20 times slower than the reference machine, an hour between rounds; Mbit/s down, up and ms one way "
        f"(medians): {phones}. These are round numbers, not measurements. `completed low` and `completed high` are "
        "Clopper and Pearson's 95% interval.",
        f"Attacks withstood are from the survey of the threat model: {PARTICIPANTS} participants, {ROUNDS} rounds, "
        f"{CORRUPTION:.0%} corrupted, set up for {RATES[0]:.0%} dropouts, and lightsecagg for {RATES[1]:.0%}, too. "
        "Misbehaviours that concern selection alone, or send one crafted model to all, are left out. They show this "
        "implementation, with its additions and omissions, not the paper's protocol. `may collude` is the guarantee "
        f"with a malicious server; none: that server sees updates. Outcomes, set up for {RATES[0]:.0%}:",
        *_survey(measurements.tables["survey"]),
    ]


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def _corrupted(frame: pd.DataFrame) -> str:
    """Return the number of corrupted participants of the first condition."""
    row = first_of(selected(frame, varied="always on"))
    return "the corrupted" if row is None else f"{row['corrupted']:.0f}"


def _honest_loss(frame: pd.DataFrame, n: int) -> str:
    """Return the losses that secagg tolerates if the server follows the protocol, with the chance at one half."""
    row = first_of(selected(frame, varied="always on"))
    if row is None:
        return "not run"
    lost = n - int(row["corrupted"]) - 1
    chance = Tolerance(n, lost).completes_with_rate(0.5)
    return f"{lost} may then be lost, and if each leaves with 50%, a sum fails with probability {1 - chance:.1g}"


def _survey(rows: pd.DataFrame) -> list[str]:
    if rows.empty:
        return []
    usual = rows[rows["rate"] == RATES[0]]
    return [in_words(str(name), of_it) for name, of_it in usual.groupby("protocol", sort=False)]
