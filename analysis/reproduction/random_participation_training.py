"""Accuracies of Hasircioglu and Gunduz, Privacy Amplification via Random Participation (arXiv 2205.01556), section 6.

DP-SGD with random participation at the noise that each analysis asks for, which is the same algorithm four times. What
the noise of the proposed analysis really guarantees stands beside its curve: see docs/random-participation.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.figure import Figure

import workloads
from analysis.bounds import random_participation_composed as composed
from analysis.bounds.random_participation import (
    Delta,
    Participation,
    as_printed,
    epsilon_of,
    only_local_sampling,
    orthogonal_pair,
    recentred,
    sigma_of,
    weak_client_sampling,
)
from analysis.figure_style import COLUMN_INCHES, house_style, save
from analysis.measures import mean_interval
from analysis.reproduction.contract import Bench, Claim, Reproduced, Reproduction
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment
from testbed.experiment.workload import Workload
from testbed.records import RunRecords

Floats = npt.NDArray[np.float64]

EPSILON, DELTA = 0.015, 1e-6
"""What the paper wants of every round (section 6.1)."""

NONE, PROPOSED, WCS, OLS = "no privacy", "proposed (Theorem 4.1)", "WCS (Theorem 5.2)", "OLS (Theorem 5.1)"
ANALYSES: Mapping[str, Delta] = {PROPOSED: recentred, WCS: weak_client_sampling, OLS: only_local_sampling}
"""How each scheme's sigma is found; the paper evaluates Theorem 4.1 centred on x'."""

_LOOKS = {NONE: ("#7F7F7F", ":"), PROPOSED: ("#0072B2", "--"), WCS: ("#000000", "-"), OLS: ("#56B4E9", "-")}
_LATE = 0.1  # of the rounds, the last ones, over whose evaluations an accuracy is the mean


@dataclass(frozen=True)
class Size:
    """How a figure is made at one scale.

    Attributes:
        local_samples: d of the runs.
        sample_rate: q of the runs.
        rounds: iterations.
        rate: factor of the paper's learning rates.
        seeds: repetitions.
        evaluations: of the model, evenly over the rounds.
        notes: what differs from the paper.
        test_samples: held-out images; None: all there are.
    """

    local_samples: int
    sample_rate: float
    rounds: int
    rate: float
    seeds: int
    evaluations: int
    notes: tuple[str, ...] = ()
    test_samples: int | None = None


@dataclass(frozen=True)
class Setting:
    """A figure of the paper.

    Attributes:
        name: of the reproduction.
        title: of the scenario.
        population: N.
        who: the paper's p, q and d, for which sigma is found.
        published: the paper's sigma by scheme.
        rates: the paper's learning rates by scheme (Appendix B.2).
        sizes: by scale.
    """

    name: str
    title: str
    population: int
    who: Participation
    published: Mapping[str, float]
    rates: Mapping[str, float]
    sizes: Mapping[str, Size]


_FEWER = (
    "{rounds} iterations at {rate:g} times the paper's learning rates, instead of the paper's (it says no number of "
    "them in its text)."
)
FIG6 = Setting(
    "random-participation-fig6",
    "many clients, small data sets",
    23_264,
    Participation(30, 0.001, 0.1),
    {PROPOSED: 1.065, WCS: 7.65, OLS: 22.4},
    {NONE: 0.002, PROPOSED: 0.002, WCS: 0.0001, OLS: 0.0001},
    {"small": Size(30, 0.1, 100, 10.0, 3, 20, (_FEWER,), 600), "paper": Size(30, 0.1, 10_000, 1.0, 5, 100)},
)
FIG7 = Setting(
    "random-participation-fig7",
    "few clients, large data sets",
    697,
    Participation(1000, 0.1, 0.001),
    {PROPOSED: 0.646, WCS: 0.873, OLS: 1.103},
    {NONE: 0.002, PROPOSED: 0.002, WCS: 0.002, OLS: 0.002},
    {
        "small": Size(
            100, 0.01, 100, 10.0, 3, 20,
            (
                _FEWER,
                "Clients have 100 samples, each used with q = 0.01, instead of 1,000 with q = 0.001: the same batch of "
                "about 70, which is what the noise is divided by. sigma and epsilon are those of the paper's d and q.",
            ),
            600,
        ),
        "paper": Size(1000, 0.001, 10_000, 1.0, 5, 100),
    },
)  # fmt: skip


@dataclass(frozen=True)
class Learned:
    """One scheme's runs.

    Attributes:
        rounds: `(e,)` int64, after which the model was evaluated.
        accuracy: `(seeds, e)` in percent.
        total: rounds of each run.
    """

    rounds: npt.NDArray[np.int64]
    accuracy: Floats
    total: int

    @property
    def late(self) -> Floats:
        """`(seeds,)` accuracy in percent: the mean over the evaluations of the last tenth of the rounds."""
        return self.accuracy[:, self.rounds > (1 - _LATE) * self.total].mean(axis=1)


def sigmas(setting: Setting) -> dict[str, float]:
    """The noise that each analysis asks for in a round, and none."""
    found = {
        scheme: sigma_of(lambda sigma, delta=delta: delta(setting.who, sigma, EPSILON), DELTA)  # type: ignore[misc]
        for scheme, delta in ANALYSES.items()
    }
    return {NONE: 0.0, **found}


def experiment(setting: Setting, size: Size, noise: Mapping[str, float], seed: int, data: Path | None) -> Experiment:
    """One seed's sweep over the schemes, which have data, first model, participants and samples in common."""
    private = {"clip": 1.0}
    schemes = [
        {
            **({"clip": "none"} if scheme == NONE else private),
            "sigma": sigma,
            "learning_rate": size.rate * setting.rates[scheme],
        }
        for scheme, sigma in noise.items()
    ]
    files = {"dataset": "synthetic-femnist"} if data is None else {"dataset": "emnist", "path": str(data)}
    return Experiment.model_validate(
        {
            "name": f"{setting.title}, seed {seed}",
            "seed": seed,
            "rounds": size.rounds,
            "population": setting.population,
            "workload": {
                **files, "model": "emnist-cnn", "samples_per_client": size.local_samples,
                "test_samples": size.test_samples,
                "evaluate_every": max(1, size.rounds // size.evaluations),
            },
            "selection": {"protocol": "bernoulli", "client_rate": setting.who.client_rate},
            "aggregation": {
                "protocol": "dp-sgd-random-participation", "sample_rate": size.sample_rate, "momentum": 0.9,
                "sigma": 0.0,
            },
            "time": {"compute": "modelled", "deadline_s": 86_400.0},
            "sweep": {"aggregation": schemes},
        }
    )  # fmt: skip


def make(setting: Setting, bench: Bench) -> Reproduced:
    """Train at every scheme's noise, and judge both the accuracies and what the noise is said to guarantee."""
    if bench.scale == "paper" and bench.data is None:
        raise ExperimentError(
            f"{setting.name}: --scale paper learns EMNIST itself; give the folder of its ByClass files with --data DIR"
        )
    size, noise = setting.sizes[bench.scale], sigmas(setting)
    runs: dict[str, list[RunRecords]] = {scheme: [] for scheme in noise}
    for seed in range(1, size.seeds + 1):
        bench.note(f"seed {seed} of {size.seeds}: {len(noise)} schemes, {size.rounds} rounds each")
        swept = experiment(setting, size, noise, seed, bench.data)
        points = bench.run(swept, bench.out / "runs" / f"seed-{seed}")
        for scheme, run in zip(noise, points, strict=True):
            runs[scheme].append(run)
    results = {scheme: learned(of_scheme) for scheme, of_scheme in runs.items()}
    bench.note("what the noise guarantees, and what two data sets lose")
    frame = table(setting, size, noise, results)
    data = workloads.build(
        Workload.model_validate(swept.model_dump(mode="json")["workload"]), setting.population, 1
    ).description
    rates = ", ".join(f"{scheme} {size.rate * rate:g}" for scheme, rate in setting.rates.items())
    return Reproduced(
        frame,
        figures=draw(setting, noise, results, frame, bench.out),
        claims=[*accuracy_claims(setting, results), privacy_claim(setting, size, frame)],
        remarks=[
            f"Data: {data}." + ("" if bench.data else " They stand in for EMNIST, which --data DIR reads."),
            *(note.format(rounds=size.rounds, rate=size.rate) for note in size.notes),
            f"{size.seeds} seeds; momentum 0.9 at the server; learning rates: {rates}. An accuracy is the mean over "
            "the evaluations of a run's last tenth; ± and bands: 95% intervals over the seeds. The schemes of a seed "
            "have everything in common but noise and rate.",
            f"All four are the same algorithm. What differs is the sigma that an analysis asks for, so that a round be "
            f"({EPSILON}, {DELTA:g})-DP. That of Theorem 4.1 (as the paper evaluates it) is no such guarantee: what a "
            "round loses lies between the worse of two pairs of data sets that can occur (the client's other gradients "
            "orthogonal to that of the sample, or parallel) and WCS.",
        ],
    )  # fmt: skip


def learned(runs: Sequence[RunRecords]) -> Learned:
    """What one scheme's runs of different seeds came to."""
    measured = [run.rounds.dropna(subset=["accuracy"]) for run in runs]
    return Learned(
        measured[0]["round"].to_numpy(np.int64),
        100 * np.array([rows["accuracy"].to_numpy(np.float64) for rows in measured]),
        len(runs[0].rounds),
    )


def table(setting: Setting, size: Size, noise: Mapping[str, float], results: Mapping[str, Learned]) -> pd.DataFrame:
    """Each scheme's noise, what it costs in privacy in a round and in all of them, and its accuracy."""
    rows = []
    for scheme, sigma in noise.items():
        row: dict[str, Any] = {
            "scheme": scheme, "sigma": sigma, "sigma (paper)": setting.published.get(scheme, 0.0),
        }  # fmt: skip
        for bound, (one_round, many_rounds) in _BOUNDS.items():
            row[f"epsilon of a round, {bound}"] = max(_in_round(delta, setting.who, sigma) for delta in one_round)
            row[f"of {size.rounds}, {bound}"] = max(
                _in_all(loss, setting.who, sigma, size.rounds) for loss in many_rounds
            )
        interval = mean_interval(results[scheme].late)
        row["accuracy [%]"], row["±"] = interval.mean, interval.half_width
        rows.append(row)
    return pd.DataFrame.from_records(rows)


_BOUNDS: Mapping[str, tuple[tuple[Delta, ...], tuple[composed.Composed, ...]]] = {
    "at least": ((orthogonal_pair, as_printed), (composed.orthogonal_pair, composed.as_printed)),
    "guaranteed": ((weak_client_sampling,), (composed.weak_client_sampling,)),
}
"""The worse of two pairs of data sets that can occur, and what holds for all."""


def _in_round(delta: Delta, who: Participation, sigma: float) -> float:
    return epsilon_of(lambda epsilon: delta(who, sigma, epsilon), DELTA) if sigma else float("inf")


def _in_all(loss: composed.Composed, who: Participation, sigma: float, rounds: int) -> float:
    if not sigma:
        return float("inf")
    return float(loss(who, sigma).self_compose(rounds).get_epsilon_for_delta(DELTA))


def accuracy_claims(setting: Setting, results: Mapping[str, Learned]) -> list[Claim]:
    """The order of the curves, seed by seed."""
    first = (
        ("the proposed scheme's noise gives much higher accuracy than WCS's", PROPOSED, WCS)
        if setting is FIG6
        else ("the proposed scheme has the best accuracy of the private ones", PROPOSED, WCS)
    )
    claims = [
        first,
        ("WCS improves on OLS", WCS, OLS),
        ("without privacy the accuracy is the highest", NONE, PROPOSED),
    ]
    found = []
    for says, better, worse in claims:
        difference = mean_interval(results[better].late - results[worse].late)
        mean, half = difference.mean, difference.half_width
        assert mean is not None
        shown = f"{better} {mean:+.1f}{'' if half is None else f' ± {half:.1f}'} points above {worse}"
        found.append(Claim(says, shown, _sign(mean, half)))
    return found


def _sign(mean: float, half: float | None) -> Literal["yes", "no"] | None:
    if half is None or abs(mean) <= half:
        return None
    return "yes" if mean > 0 else "no"


def privacy_claim(setting: Setting, size: Size, frame: pd.DataFrame) -> Claim:
    """What the proposed scheme's noise is said to guarantee."""
    row = frame[frame["scheme"] == PROPOSED].iloc[0]
    least, most = (float(row[f"epsilon of a round, {bound}"]) for bound in ("at least", "guaranteed"))
    all_least, all_most = (float(row[f"of {size.rounds}, {bound}"]) for bound in ("at least", "guaranteed"))
    return Claim(
        f"the proposed scheme's sigma = {setting.published[PROPOSED]} makes every round ({EPSILON}, {DELTA:g})-DP",
        f"at sigma = {row['sigma']:.4g} a round loses epsilon {least:.3g} at least, and {most:.3g} at most (WCS); "
        f"{size.rounds} rounds {all_least:.3g} to {all_most:.3g}",
        "no" if least > EPSILON else ("yes" if most <= EPSILON else None),
    )


def draw(
    setting: Setting, noise: Mapping[str, float], results: Mapping[str, Learned], frame: pd.DataFrame, out: Path
) -> list[Path]:
    """Accuracy over the iterations; the legend says what a round loses, which for the proposed scheme is no 0.015."""
    rows = frame.set_index("scheme")
    with house_style():
        figure = Figure(figsize=(1.5 * COLUMN_INCHES, 3.2), layout="constrained")
        axes = figure.subplots()
        for scheme, of_scheme in results.items():
            colour, line = _LOOKS[scheme]
            intervals = [mean_interval(values) for values in of_scheme.accuracy.T]
            mean = np.array([interval.mean for interval in intervals], np.float64)
            half = np.array([interval.half_width or 0.0 for interval in intervals])
            label = scheme
            if noise[scheme]:
                least, most = (rows.loc[scheme, f"epsilon of a round, {bound}"] for bound in ("at least", "guaranteed"))
                label += f", sigma {noise[scheme]:.3g}: a round loses epsilon {least:.2g} to {most:.2g}"
                label += f" (said: {EPSILON})" if least > EPSILON else ""
            axes.plot(of_scheme.rounds, mean, color=colour, linestyle=line, label=label)
            axes.fill_between(of_scheme.rounds, mean - half, mean + half, color=colour, alpha=0.13, linewidth=0)
        axes.set(xlabel="iteration", ylabel="accuracy [%]", ylim=(0, 100))
        axes.set_title(f"{setting.title} (p = {setting.who.client_rate:g})")
        axes.grid()
        figure.legend(loc="outside lower center", ncols=1)
        out.mkdir(parents=True, exist_ok=True)
        return save(figure, out / setting.name)


def _reproduction(setting: Setting, figure: str) -> Reproduction:
    return Reproduction(
        setting.name,
        f"Random participation: accuracy at the noise of four analyses, {setting.title}",
        f"Hasircioglu and Gunduz, Privacy Amplification via Random Participation, arXiv 2205.01556, {figure}",
        partial(make, setting),
        reads="EMNIST ByClass, idx files",
    )


REPRODUCTIONS = (_reproduction(FIG6, "Figure 6"), _reproduction(FIG7, "Figure 7"))
