"""Recovery of updates and samples from sums by a server that sends other models, by the number of summed clients.

Pasquini, Francati, Ateniese, Eluding Secure Aggregation in Federated Learning via Model Inconsistency, CCS 2022, arXiv
2111.07380: all clients but a victim receive a model that does not move. Fowl, Geiping, Czaja, Goldblum, Goldstein,
Robbing the Fed, ICLR 2022, arXiv 2110.13057: all clients receive one crafted model. Both run with real SecAgg and
unmodified clients.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.attacks.other_models import RECOVERED_DB, RecoveredSamples, recovered_samples, recovered_updates
from analysis.attacks.victims import Victims
from analysis.reproduction.contract import (
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from analysis.reproduction.experiments import declared
from analysis.reproduction.verdicts import PaperClaim, above, equal
from analysis.statistics import interval_of, mean_interval
from testbed.adversary.crafted_models import SendCraftedModel, SendDifferentModels
from testbed.experiment.schema import Experiment
from testbed.records import RunRecords

SIZES = (2, 5, 10, 50)
"""Numbers of clients in a sum."""
ROUNDS = {"small": 10, "paper": 100}
SEED = 1
VERBATIM_DB = 60.0
"""Peak signal-to-noise ratio [dB] from which a sample counts as a copy: an error of a thousandth of the range."""


def experiment(attack: str, participants: Sequence[int], rounds: int, aggregation: dict[str, Any]) -> Experiment:
    """Return digits and two hidden layers, one step on all samples of a client, without accomplices.

    Args:
        attack: misbehaviour of the server.
        participants: numbers of clients in a sum.
        rounds: number of rounds.
        aggregation: section `aggregation`.
    """
    return declared(
        f"{attack}, {aggregation['protocol']}",
        """
        population: 100
        workload: {dataset: digits, model: mlp, batch_size: 100}
        selection: {protocol: random}
        adversary: {dishonest: 0}
        records: {aggregates: all}
        """,
        {
            "seed": SEED,
            "rounds": rounds,
            "workload.evaluate_every": rounds,
            "selection.participants": participants[0],
            "aggregation": aggregation,
            "adversary.server": attack,
            "sweep": {"selection.participants": list(participants)},
        },
    )


def _runs(
    context: ReproductionContext, attack: str, participants: Sequence[int], name: str, **aggregation: Any
) -> dict[int, RunRecords]:
    context.progress(f"{attack}, {name}: sums over {', '.join(map(str, participants))}")
    rounds = ROUNDS["small" if context.scale == "small" else "paper"]
    swept = experiment(attack, participants, rounds, {"protocol": "secagg", **aggregation})
    runs = context.run_experiment(swept, context.out / "runs" / name)
    return dict(zip(participants, runs, strict=True))


def measure_different_models(context: ReproductionContext) -> Measurements:
    """Recover the victim's update from sums over more and more clients."""
    unsigned = _runs(context, SendDifferentModels.name, SIZES, "unsigned", model_binding="none")
    signed = _runs(context, SendDifferentModels.name, SIZES, "signed", model_binding="signed")
    updates = [
        {
            "clients": size,
            "round": update.round,
            "dimension": update.dimension,
            "recovered": update.recovered or 0,
            "relative error": update.relative_error,
            "largest error": update.largest_error or 0.0,
        }
        for size, run in unsigned.items()
        for update in recovered_updates(run, Victims(run))
    ]
    outcomes = [
        {"clients": size, "round": number, "outcome": outcome}
        for size, run in signed.items()
        for number, outcome in run.rounds[["round", "outcome"]].itertuples(index=False)
    ]
    return Measurements(
        _setting(context),
        {"updates": pd.DataFrame.from_records(updates), "signed models": pd.DataFrame.from_records(outcomes)},
    )


def _setting(context: ReproductionContext) -> Setting:
    return Setting(
        "stand-in",
        "UCI digits of scikit-learn, in the parts of 100 clients",
        seeds=[SEED],
        sizes={
            "population": 100,
            "rounds": ROUNDS["small" if context.scale == "small" else "paper"],
            "most clients in a sum": max(SIZES),
        },
        differs=["digits and two hidden layers instead of the paper's data and models"],
    )


def conclude_different_models(measurements: Measurements) -> ReproductionResult:
    """Judge by the coordinates of the victims' updates."""
    signed = measurements.tables["signed models"]
    frame = pd.DataFrame.from_records(
        [
            {
                "clients in the sum": size,
                "rounds": len(part),
                "coordinates had": f"{part['recovered'].min()} of {part['dimension'].iloc[0]}",
                "relative error": float(part["relative error"].mean()),
                "largest error, steps": float(part["largest error"].max()),
                "refused where models are signed": _refused(signed[signed["clients"] == size]),
            }
            for size, part in measurements.tables["updates"].groupby("clients")
        ]
    )
    return ReproductionResult(
        frame,
        claims=claims_of_different_models(frame),
        remarks=[
            "A coordinate counts as had if the rounding of all summands explains its error. relative error: |d - "
            "d'|^2 / |d|^2, mean of the rounds.",
            "Digits, two hidden layers, SecAgg with levels of 16 bits, no accomplices. Clients train as asked, and "
            "one victim per round receives the model that all should have.",
            "Signed models are not in the paper: a client signs, with its keys, the model that it was asked to train.",
        ],
    )


def _refused(rounds: pd.DataFrame) -> str:
    return f"{(rounds['outcome'] != 'completed').sum()} of {len(rounds)}"


def claims_of_different_models(frame: pd.DataFrame) -> list[PaperClaim]:
    """Return the claim that the victim's update was recovered, by the number of clients in the sum.

    Args:
        frame: as `conclude_different_models` makes it.
    """
    shares = {}
    for _, row in frame.iterrows():
        coordinates, _, dimension = row["coordinates had"].partition(" of ")
        shares[row["clients in the sum"]] = int(coordinates) / int(dimension)
    return [
        PaperClaim(
            "a malicious server has a single update out of a secure sum, however many clients are in it",
            "of the victim's coordinates, in the worst round: "
            + ", ".join(f"{share:.0%} out of {size}" for size, share in shares.items()),
            [equal(f"share of the coordinates, sums over {size}", share, 1.0) for size, share in shares.items()],
        )
    ]


def measure_crafted_model(context: ReproductionContext) -> Measurements:
    """Recover training samples from single updates and from sums."""
    alone = _runs(context, SendCraftedModel.name, (1,), "alone", protocol="plain")  # SecAgg refuses a sum over one
    summed = _runs(context, SendCraftedModel.name, SIZES, "summed")
    rows = [
        {
            "clients": size,
            "round": samples.round,
            "samples": float(samples.samples),
            "recovered": float(samples.recovered),
            "copies": float(_copies(samples)),
        }
        for size, run in (alone | summed).items()
        for samples in recovered_samples(run, Victims(run))
    ]
    return Measurements(_setting(context), {"rounds": pd.DataFrame.from_records(rows)})


def conclude_crafted_model(measurements: Measurements) -> ReproductionResult:
    """Count the recovered samples, and those that are copies, by the number of clients in the sum."""
    rows = []
    for size, part in measurements.tables["rounds"].groupby("clients"):
        had, copied, samples = mean_interval(part["recovered"]), mean_interval(part["copies"]), part["samples"].mean()
        rows.append(
            {
                "clients in the sum": size,
                "samples in the sum": float(samples),
                _HAD: had.mean,
                "±": had.half_width,
                _COPIES: copied.mean,
                "± copies": copied.half_width,
                "share had %": 100 * (had.mean or 0.0) / float(samples),
            }
        )
    frame = pd.DataFrame.from_records(rows)
    return ReproductionResult(
        frame,
        claims=claims_of_crafted_model(frame),
        remarks=[
            f"A sample counts as had if a bin shows it with {RECOVERED_DB:g} dB peak signal-to-noise ratio, copied "
            f"with {VERBATIM_DB:g}. ±: 95% intervals over the rounds.",
            "Digits; the crafted layer is the first of two hidden ones, with 64 units and so 63 bins (the paper puts "
            "a module of its own before the network, with any number of bins); one step on all samples of a client.",
            "Larger sums have narrower bins, so that each bin has about one sample in expectation. So the number of "
            "recovered samples stays constant and their share falls.",
            "Copies become fewer in larger sums, as the updates of all summands are rounded, to levels of 16 bits.",
            "A single update (one client) is summed in the clear: SecAgg refuses a sum over one.",
        ],
    )


_HAD, _COPIES = f"had ({RECOVERED_DB:g} dB)", f"copies ({VERBATIM_DB:g} dB)"


def claims_of_crafted_model(frame: pd.DataFrame) -> list[PaperClaim]:
    """Return the claims on copies from a single update, and on samples from sums.

    Args:
        frame: as `conclude_crafted_model` makes it: one client in the first row, the largest sum in the last.
    """
    alone, sums, largest = frame.iloc[0], frame.iloc[1:], frame.iloc[-1]
    return [
        PaperClaim(
            "a crafted model gives a verbatim copy of training samples, without an inverse problem to solve",
            f"{alone[_COPIES]:.1f} of {alone['samples in the sum']:.1f} samples of one client a round",
            [above("copies a round, one client's update", interval_of(alone[_COPIES], alone["± copies"]), 1.0)],
        ),
        PaperClaim(
            "so it does of data that are aggregated over large batches",
            f"{largest[_HAD]:.1f} of {largest['samples in the sum']:.1f} samples in sums over "
            f"{largest['clients in the sum']:.0f} clients, {largest[_COPIES]:.1f} of them copies",
            [
                above(
                    f"samples had a round, sums over {row['clients in the sum']:.0f}",
                    interval_of(row[_HAD], row["±"]),
                    1.0,
                )
                for _, row in sums.iterrows()
            ],
        ),
    ]


def _copies(of_round: RecoveredSamples) -> int:
    return int((of_round.psnr >= VERBATIM_DB).sum())


REPRODUCTIONS = (
    Reproduction(
        "inversion-different-models",
        "One update out of a secure sum, by sending the others a model that does not move",
        "Pasquini, Francati, Ateniese, CCS 2022, arXiv 2111.07380, abstract",
        built_in_data="stand-in",
        measure=measure_different_models,
        conclude=conclude_different_models,
    ),
    Reproduction(
        "inversion-crafted-model",
        "Training samples out of sums, by one crafted model for all",
        "Fowl, Geiping, Czaja, Goldblum, Goldstein, ICLR 2022, arXiv 2110.13057, abstract",
        built_in_data="stand-in",
        measure=measure_crafted_model,
        conclude=conclude_crafted_model,
    ),
)
