"""Section 5.5 of Hasircioglu and Gunduz (arXiv 2205.01556): a server that is not trusted.

Each client then adds noise of its own. Either all available clients answer, so that the server does not learn the
participants, or participants alone. Accuracy and traffic are those of training runs; the settings of a seed have data,
first model, participants and samples in common. Computation is the CPU time of a client's gradients and of its noise,
at the paper's number of samples and with its network.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

import workloads
from analysis.attacks.membership_of_models import OrthogonalGradients, experiment_of
from analysis.reproduction.contract import (
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from analysis.reproduction.random_participation.published import PAPER, SCENARIOS, PublishedScenario
from analysis.reproduction.random_participation.tasks import DIGITS, TrainingTask, training_experiment
from analysis.reproduction.training_runs import (
    AccuracyCurves,
    best_rate_by,
    describe_data,
    evaluations_of,
    runs_by_scheme,
)
from analysis.reproduction.verdicts import PaperClaim, above, between, plus_minus
from analysis.statistics import Interval, mean_interval, ratio_interval
from testbed.engine.in_process import federation_in_process
from testbed.engine.plan import RunPlan
from testbed.experiment.schema import Experiment
from testbed.privacy.gaussian import with_noise
from testbed.workload.contract import LocalUpdate
from testbed.workload.section import WorkloadSection

TRUSTED, EVERYBODY, PARTICIPANTS = "trusted", "untrusted, everybody answers", "untrusted, participants answer"
SERVERS: Mapping[str, Mapping[str, str]] = {
    TRUSTED: {"server": "trusted"},
    EVERYBODY: {"server": "untrusted", "answers": "everybody"},
    PARTICIPANTS: {"server": "untrusted", "answers": "participants"},
}
"""Keys of the aggregation, by name of the setting."""

TASK = replace(DIGITS, rounds=60, evaluations=20, rates=dict.fromkeys(SERVERS, (0.01, 0.03, 0.1)), seeds=3)
SIGMA = 1.0
"""Noise that hides a sample: the trusted server's, or that of each client."""
_SEARCH_SEED = 0

REPETITIONS = 60
"""Timed answers of a client in each scenario."""
COUNTED_CLIENTS, COUNTED_ROUNDS, COUNTED_RATE = 300, 20, 0.1
"""Federation with counted gradients, and its client rate."""

STILL_VALID = 0.1
"""Distance of the saved share of computation from 1 - p, the share without noise of clients, at which the reduction
counts as still valid."""


def measure_untrusted(context: ReproductionContext) -> Measurements:
    """Train with each kind of server, count the clients' gradients, and time a client's gradients and noise."""
    task = replace(TASK, seeds=context.seeds or TASK.seeds)
    tried = _search(context, task)
    runs = runs_by_scheme(
        context,
        SERVERS,
        task.rounds,
        task.seeds,
        partial(experiment, task, best_rate_by("server", tried)),
        folder="runs",
    )
    evaluations, traffic = [], []
    for server, of_server in runs.items():
        for seed, run in enumerate(of_server, 1):
            row = {"seed": seed, "server": server}
            evaluations += [row | evaluation for evaluation in evaluations_of(run)]
            total = int((run.rounds["bytes_down"] + run.rounds["bytes_up"]).sum())
            traffic.append({**row, "rounds": len(run.rounds), "server traffic [bytes]": total})
    context.progress("gradients of the clients counted, and gradients and noise timed")
    participation = task.participation
    samples = {**task.workload, "samples_per_client": participation.local_samples}
    return Measurements(
        Setting(
            task.data_kind,
            describe_data(samples, task.population),
            seeds=list(range(1, task.seeds + 1)),
            sizes={
                "clients": task.population,
                "samples of a client": participation.local_samples,
                "client rate": participation.client_rate,
                "sample rate": participation.sample_rate,
                "rounds": task.rounds,
                "sigma": SIGMA,
            },
            differs=["Scale and data: the section names none; these are 24 clients with 8x8 digits."],
            choices={"search_seed": _SEARCH_SEED},
        ),
        {
            "evaluations": pd.DataFrame(evaluations),
            "learning rates": tried,
            "traffic": pd.DataFrame(traffic),
            "gradients": count_gradients(),
            "seconds": pd.concat([time_client(scenario) for scenario in SCENARIOS], ignore_index=True),
        },
    )


def experiment(task: TrainingTask, rates: Mapping[str, float], seed: int) -> Experiment:
    """Return one seed's sweep over the settings.

    Args:
        task: the learning task.
        rates: learning rate by setting.
        seed: seed of data, first model, participants, samples and noise.
    """
    return _swept(task, [{**SERVERS[server], "learning_rate": rate} for server, rate in rates.items()], seed)


def _swept(task: TrainingTask, points: list[dict[str, Any]], seed: int) -> Experiment:
    common = {"clip": 1.0, "momentum": 0.9, "sigma": SIGMA}
    return training_experiment(f"untrusted server, seed {seed}", task, common, points, seed)


def _search(context: ReproductionContext, task: TrainingTask) -> pd.DataFrame:
    """Train with every learning rate, with a seed that is not compared."""
    grid = [(server, rate) for server in SERVERS for rate in task.rates[server]]
    context.progress(f"learning rates: {len(grid)} runs, {task.rounds} rounds each")
    points: list[dict[str, Any]] = [{**SERVERS[server], "learning_rate": rate} for server, rate in grid]
    runs = context.run_experiment(_swept(task, points, _SEARCH_SEED), context.out / "runs" / "rates")
    return pd.DataFrame(
        [
            {
                "seed": _SEARCH_SEED,
                "server": server,
                "learning rate": rate,
                "accuracy [%]": float(AccuracyCurves.of([run]).late[0]),
            }
            for (server, rate), run in zip(grid, runs, strict=True)
        ]
    )


class CountedGradients(OrthogonalGradients):
    """A workload that counts the clients that compute gradients."""

    computed = 0

    def gradient_sum(
        self,
        client: int,
        model: npt.NDArray[np.float32],
        round_number: int,
        samples: npt.NDArray[np.int64],
        clip: float | None,
    ) -> LocalUpdate:
        """Count the client, and return its sum of gradients."""
        self.computed += 1
        return super().gradient_sum(client, model, round_number, samples, clip)


def count_gradients() -> pd.DataFrame:
    """Count the clients that compute gradients in rounds in which every available client answers.

    Returns:
        Columns round, available, computed.
    """
    data = experiment_of(SCENARIOS[0].participation, SIGMA, COUNTED_CLIENTS, COUNTED_ROUNDS, 1).model_dump(
        mode="json", exclude_unset=True
    )
    data["selection"]["client_rate"] = COUNTED_RATE
    data["aggregation"] |= SERVERS[EVERYBODY]
    counted = CountedGradients(COUNTED_CLIENTS, SCENARIOS[0].participation.local_samples, holds=True)
    federation = federation_in_process(RunPlan(Experiment.model_validate(data), 1), counted, None)

    async def run() -> list[dict[str, int]]:
        rows = []
        for number in range(1, COUNTED_ROUNDS + 1):
            before = counted.computed
            await federation.run_next_round()
            rows.append({"round": number, "available": COUNTED_CLIENTS, "computed": counted.computed - before})
        return rows

    return pd.DataFrame(asyncio.run(run()))


def time_client(scenario: PublishedScenario) -> pd.DataFrame:
    """Time a client's sum of gradients, over samples that are drawn anew each time, and its noise.

    Args:
        scenario: the paper's scenario; images are generated, of EMNIST's shape.

    Returns:
        Columns figure, repetition, samples, gradients [s], noise [s], noise of numpy [s]; CPU seconds.
    """
    samples, rate = scenario.participation.local_samples, scenario.participation.sample_rate
    section = {"dataset": "synthetic-femnist", "model": "emnist-cnn", "samples_per_client": samples}
    workload: Any = workloads.build(WorkloadSection.model_validate(section), 2, 1)
    model, random = workload.initial_model(), np.random.default_rng(1)
    workload.gradient_sum(0, model, 1, np.arange(samples), 1.0)  # makes the images
    rows = []
    for repetition in range(REPETITIONS):
        used = np.flatnonzero(random.random(samples) < rate)
        begin = time.process_time()
        total = workload.gradient_sum(0, model, 1, used, 1.0).delta
        trained = time.process_time()
        with_noise(total, SIGMA, random.bytes(32))
        noisy = time.process_time()
        total + SIGMA * random.standard_normal(len(total), np.float32)
        end = time.process_time()
        rows.append(
            {
                "figure": scenario.figure,
                "repetition": repetition,
                "samples": len(used),
                "gradients [s]": trained - begin,
                "noise [s]": noisy - trained,
                "noise of numpy [s]": end - noisy,
            }
        )
    return pd.DataFrame(rows)


def conclude_untrusted(measurements: Measurements) -> ReproductionResult:
    """Compare accuracy, traffic and computation with the statements of section 5.5."""
    tables, sizes = measurements.tables, measurements.setting.sizes
    late = {
        server: AccuracyCurves(wide.columns.to_numpy(np.int64), wide.to_numpy(np.float64), int(sizes["rounds"])).late
        for server in SERVERS
        for rows in [tables["evaluations"][tables["evaluations"]["server"] == server]]
        for wide in [rows.pivot_table(index="seed", columns="round", values="accuracy [%]")]
    }
    seeds = len(late[TRUSTED])
    leads = {server: mean_interval(late[TRUSTED] - late[server]) for server in (EVERYBODY, PARTICIPANTS)}
    traffic = tables["traffic"].pivot_table(index="seed", columns="server", values="server traffic [bytes]")
    more = ratio_interval(traffic[EVERYBODY], traffic[TRUSTED])
    rates = best_rate_by("server", tables["learning rates"])
    tried = tables["learning rates"]["learning rate"].nunique()
    table = pd.DataFrame(
        [
            {
                "server": server,
                "learning rate": rates[server],
                "accuracy [%]": mean_interval(late[server]).mean,
                "±": mean_interval(late[server]).half_width,
                "server traffic of a round [MB]": float(traffic[server].mean()) / sizes["rounds"] / 1e6,
            }
            for server in SERVERS
        ]
    )
    return ReproductionResult(
        table,
        claims=[
            PaperClaim(
                "noise of each client has a higher variance in the sum, and reduces the accuracy",
                "; ".join(
                    f"trusted server {plus_minus(lead, '+.1f')} points above {server}" for server, lead in leads.items()
                ),
                [above(f"points above {server}", lead) for server, lead in leads.items()],
                seeds=seeds,
            ),
            PaperClaim(
                "the communication efficiency degrades, since all available clients send",
                f"the server's traffic is {plus_minus(more, '.2f')} times that of a trusted server at p = "
                f"{sizes['client rate']:g}",
                [above("traffic over that with a trusted server", more, 1.0)],
                seeds=seeds,
                uses_data=False,
            ),
            computation_claim(tables["gradients"], tables["seconds"]),
        ],
        remarks=[
            f"Data: {measurements.setting.data}. {measurements.setting.differs[0]}",
            f"{sizes['clients']:g} clients, p = {sizes['client rate']:g}, q = {sizes['sample rate']:g}, "
            f"sigma = {sizes['sigma']:g} with a trusted server, and of each client otherwise; {sizes['rounds']:g} "
            f"rounds. Each setting has the best of {tried} learning rates, chosen on a seed that is not compared.",
            "Timed are the testbed's sum of clipped gradients and its noise, from AES-256 on a grid; the claim is "
            "judged with the faster noise of numpy's generator, which is not secret. Images are generated, of EMNIST's "
            "shape.",
            f"The reduction is judged as still valid if it is within {100 * STILL_VALID:g} points of 1 - p. Response "
            "times would reveal the participants unless all clients take equally long, which the section does not "
            "mention.",
        ],
    )


def computation_claim(counted: pd.DataFrame, seconds: pd.DataFrame) -> PaperClaim:
    """Return the claim that client sampling still reduces the computation.

    Args:
        counted: as `count_gradients` makes it.
        seconds: as `time_client` makes it.
    """
    computed = ratio_interval(counted["computed"], counted["available"])
    assert computed.mean is not None
    checks = [
        between(
            "share of clients without gradients less 1 - p",
            Interval(COUNTED_RATE - computed.mean, computed.half_width),
            -STILL_VALID,
            STILL_VALID,
        )
    ]
    texts = [f"{100 * (1 - computed.mean):.1f}% of the answering clients compute no gradient at p = {COUNTED_RATE:g}"]
    for scenario in SCENARIOS:
        rows, rate = seconds[seconds["figure"] == scenario.figure], scenario.participation.client_rate
        gradients, noise, fast = (rows[name] for name in ("gradients [s]", "noise [s]", "noise of numpy [s]"))
        ratio = ratio_interval(rate * gradients + fast, gradients + fast)
        own = ratio_interval(rate * gradients + noise, gradients + noise)
        assert ratio.mean is not None
        assert own.mean is not None
        checks.append(
            between(
                f"share of a client's computation that is saved, {scenario.figure}",
                Interval(1 - ratio.mean, ratio.half_width),
                1 - rate - STILL_VALID,
                min(1.0, 1 - rate + STILL_VALID),
            )
        )
        texts.append(
            f"at the sizes of {scenario.figure} (p = {rate:g}) a participant's gradients take "
            f"{1e3 * gradients.mean():.2g} ms and each client's noise {1e3 * fast.mean():.2g} ms (the testbed's "
            f"{1e3 * noise.mean():.2g} ms), so that client sampling saves {100 * (1 - ratio.mean):.0f}% of an "
            f"available client's computation ({100 * (1 - own.mean):.0f}%)"
        )
    return PaperClaim(
        "the reduction in the computational costs due to client sampling is still valid",
        "; ".join(texts),
        checks,
        uses_data=False,
    )


REPRODUCTIONS = (
    Reproduction(
        "random-participation-untrusted",
        "Random participation with a server that is not trusted: accuracy, traffic, computation",
        f"{PAPER}, section 5.5",
        scales=("small",),
        takes_seeds=True,
        built_in_data="stand-in",
        measure=measure_untrusted,
        conclude=conclude_untrusted,
    ),
)
