"""``testbed bound`` and ``testbed plan``: guarantees of published selections, and options that all bounds share."""

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from testbed.cli.invocation import Debug, examples, flag, group, option
from testbed.cli.terminal import echo
from testbed.errors import ExperimentError
from testbed.files import limits

MOST_CLIENTS = 10**10  # no population is larger, and no bound takes longer than seconds

Population = Annotated[int, option("N", "Clients in the population, n.", min=1, max=MOST_CLIENTS)]
Dishonest = Annotated[str, option("C|SHARE", "Dishonest clients among them, c: a number, or a share such as 5%.")]
Participants = Annotated[int, option("S", "Participants of a round, s.", min=1)]
OverSelection = Annotated[float, option("A", "Over-selection factor a, at least 1.")]
MinPopulation = Annotated[int | None, option("M", "n_min, which clients insist on.  \\[default: N]", min=1)]
Threshold = Annotated[str, option("T", "SecAgg's threshold: a number t, or a fraction of the participants, e.g. 0.7.")]
Sufficiency = Annotated[
    float, option("P", "What the chance of enough candidates must reach, for the over-selection factor.")
]
PlannedRounds = Annotated[
    int | None,
    option(
        "R",
        "Plan for a training of R rounds: the target holds for all of them together (each has target/R). "
        "\\[default: for one round]",
        min=1,
        max=10_000_000,
    ),
]
Format = Annotated[Literal["text", "json"], typer.Option(help="json is one flat object at full precision.")]


def threshold_of(text: str) -> int | float:
    """A number of participants, or a fraction of them."""
    try:
        return int(text) if text.strip().lstrip("+-").isdigit() else float(text)
    except ValueError:
        raise ValueError(f"threshold: {text} is neither a number of participants nor a fraction") from None


def number_of(text: str, population: int) -> int:
    """How many clients ``25``, ``5%`` or ``0.05`` are; a share is rounded up."""
    percent, plain = text.strip().endswith("%"), text.strip().removesuffix("%")
    try:
        value = Fraction(plain.strip()) / (100 if percent else 1)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"dishonest: {text} is neither a number of clients nor a share, e.g. 25 or 5%") from None
    is_share = percent or not plain.strip().lstrip("+-").isdigit()
    if value < 0 or (is_share and value > 1):
        raise ValueError(f"dishonest: {text}; must be {'a share from 0 to 100%' if is_share else 'at least 0'}")
    return ceil(value * population) if is_share else int(value)


@contextmanager
def in_options() -> Iterator[None]:
    """Say what is wrong with a parameter as what is wrong with its option."""
    try:
        yield
    except ValueError as error:
        name, colon, rest = str(error).partition(": ")
        raise ExperimentError(f"--{name.replace('_', '-')}{colon}{rest}") from None


_LOTTO = "--population 200000 --dishonest 1000 --participants 200"
_BOUND_LOTTO_EPILOG = examples(
    f"testbed bound lotto {_LOTTO} --over-selection 1.3 --eta 10 --threshold 0.53",
    "testbed bound lotto --population 700 --dishonest 70 --participants 70 --over-selection 1.3 --format json",
    "testbed bound lotto --population 100 --dishonest 20 --participants 10 --threshold 9 --rounds 3000 --round-gap 1",
    then="Probabilities are exact down to 5e-324; JSON holds their logarithms too.",
)
_BOUND_LOTTO_DP_EPILOG = examples(
    f"testbed bound lotto-dp {_LOTTO} --threshold 0.7 --rounds 50 --noise-multiplier 6.27",
    f"testbed bound lotto-dp {_LOTTO} --rounds 50 --noise-multiplier 6.27 --delta 1e-6 --scale 1024 --format json",
    then="The noise multiplier is that of the sum over all participants: standard deviation over clipping norm.",
)
_PLAN_LOTTO_EPILOG = examples(
    f"testbed plan lotto {_LOTTO} --over-selection 1.3 --threshold 0.7 --target 1e-9",
    "testbed plan lotto --population 1000 --dishonest 5% --participants 70 --target 1e-6 --rounds 100",
    "testbed plan lotto --population 1000 --dishonest 50 --participants 70 --target 1e-6 --base-rate 0.2 --format json",
    then="Each answer changes one parameter and keeps the others as given.",
)
_ROUNDS = 100_000
_NUMBERS = 10_000_000
_SUMMED = 10**6  # participants over whose dishonest ones a guarantee is minimised: seconds, too
_COULD_BE = 10**9  # devices that could register, unless the population is larger

bound = group(name="bound", help="Print what the papers guarantee for given parameters.", epilog=_BOUND_LOTTO_EPILOG)
plan = group(name="plan", help="Print which parameters meet a target.", epilog=_PLAN_LOTTO_EPILOG)


@bound.command("lotto", epilog=_BOUND_LOTTO_EPILOG)
def bound_lotto(
    population: Population,
    dishonest: Dishonest,
    participants: Participants,
    over_selection: OverSelection = 1.3,
    min_population: MinPopulation = None,
    eta: Annotated[float, option("E", "How many times their due share dishonest participants may reach.")] = 10.0,
    threshold: Threshold = "0.7",
    rounds: Annotated[
        int | None,
        option("R", "Also over so many rounds, of which the server chooses which happen.", min=1, max=_NUMBERS),
    ] = None,
    round_gap: Annotated[
        int | None,
        option(
            "G",
            "How far above the last round that it has heard "
            "of a client accepts one (max_round_gap).  \\[default: any later one]",
            min=1,
            max=_NUMBERS,
        ),
    ] = None,
    format: Format = "text",
    debug: Debug = False,
) -> None:
    """Lotto in one round: enough candidates, too many dishonest participants, SecAgg broken.

    Theorem 1, lambda, Theorem 2 and Corollary 1 of the Lotto paper; with --rounds, the last one over the rounds that a
    server announces.
    """
    from analysis.bounds.lotto_report import lotto_bounds, text
    from analysis.bounds.rows import render

    if round_gap is not None and rounds is None:
        raise ExperimentError("--round-gap: needs --rounds, over which it holds")
    with in_options():
        row = lotto_bounds(
            population=population,
            dishonest=number_of(dishonest, population),
            participants=participants,
            over_selection=over_selection,
            min_population=min_population,
            eta=eta,
            threshold=threshold_of(threshold),
            rounds=rounds,
            round_gap=round_gap,
        )
    echo(render(row, format, text), nl=False)


@bound.command("lotto-dp", epilog=_BOUND_LOTTO_DP_EPILOG)
def bound_lotto_dp(
    population: Population,
    dishonest: Dishonest,
    participants: Annotated[int, option("S", "Participants of a round, s.", min=1, max=_SUMMED)],
    rounds: Annotated[int, option("R", "Rounds, R.", min=1, max=_ROUNDS)],
    noise_multiplier: Annotated[float, option("Z", "Noise in the sum over the clipping norm.")],
    over_selection: OverSelection = 1.3,
    min_population: MinPopulation = None,
    maximum_population: Annotated[
        int | None,
        option(
            "M",
            "n_max, clients that there could be at all, N or more (server-centric).  \\[default: 1000000000, or N]",
            min=1,
            max=MOST_CLIENTS,
        ),
    ] = None,
    threshold: Threshold = "0.7",
    delta: Annotated[float | None, option("D", "In (0, 1).  \\[default: 1/N]")] = None,
    dimension: Annotated[int, option("D", "Coordinates of an update, padded to a power of two.", min=1)] = 2**20,
    scale: Annotated[float, option("K", "The clipping norm in integer steps.")] = 2.0**15,
    parallel_lists: Annotated[
        bool, flag("Also for a server with several participant lists in a round.", "--parallel-lists")
    ] = False,
    format: Format = "text",
    debug: Debug = False,
) -> None:
    """Lotto over a training with distributed differential privacy (Skellam): the epsilon that is guaranteed.

    Corollaries 2 (client-centric) and 3 (server-centric) of the Lotto paper, with the k and r that minimise it, and
    the epsilon when a malicious server chooses the participants.
    """
    from analysis.bounds.lotto_report import lotto_dp_costs, text
    from analysis.bounds.lotto_rounds import Training
    from analysis.bounds.rows import render
    from testbed.privacy.accounting import Skellam

    with in_options():
        training = Training(
            dishonest=number_of(dishonest, population),
            participants=participants,
            over_selection=over_selection,
            min_population=population if min_population is None else min_population,
            threshold=threshold_of(threshold),
            rounds=rounds,
            delta=1 / population if delta is None else delta,
            mechanism=Skellam(noise_multiplier, dimension, scale),
            maximum_population=max(_COULD_BE, population) if maximum_population is None else maximum_population,
        )
        row = lotto_dp_costs(training, population, parallel_lists=parallel_lists)
    echo(render(row, format, text), nl=False)


@plan.command("lotto", epilog=_PLAN_LOTTO_EPILOG)
def plan_lotto(
    population: Population,
    dishonest: Dishonest,
    participants: Participants,
    target: Annotated[
        float, option("P", "What Pr[SecAgg fails] must not exceed: in a round, or with --rounds in all of them.")
    ],
    over_selection: OverSelection = 1.3,
    min_population: MinPopulation = None,
    threshold: Threshold = "0.7",
    sufficiency: Sufficiency = 0.99,
    base_rate: Annotated[float | None, option("F", "Largest fraction of dishonest clients after refinement.")] = None,
    eta: Annotated[float | None, option("E", "Also plan n_min for Pr\\[x/s > E c/n] <= target.")] = None,
    rounds: PlannedRounds = None,
    format: Format = "text",
    debug: Debug = False,
) -> None:
    """Lotto's parameters for a target: smallest n_min and threshold, largest exclusion, range of over-selection."""
    from analysis.bounds.lotto_report import lotto_plan, text
    from analysis.bounds.rows import render

    with in_options():
        row = lotto_plan(
            population=population,
            dishonest=number_of(dishonest, population),
            participants=participants,
            over_selection=over_selection,
            min_population=min_population,
            threshold=threshold_of(threshold),
            target=target,
            sufficiency=sufficiency,
            base_rate=base_rate,
            eta=eta,
            rounds=rounds,
        )
    echo(render(row, format, text), nl=False)


_WHO = "--local-samples 30 --client-rate 0.001 --sample-rate 0.1"
BOUND_RANDOM_PARTICIPATION_EPILOG = examples(
    f"testbed bound random-participation {_WHO} --epsilon 0.015 --delta 1e-6",
    f"testbed bound random-participation {_WHO} --sigma 1.065 --delta 1e-6 --rounds 1000 --format json",
    then="The guarantee is wcs. What is published for this algorithm (theorem_4_1) is none: "
    "docs/papers/random-participation.md shows it.",
)


def bound_random_participation(
    local_samples: Annotated[int, option("D", "Samples of each client, d.", min=0, max=10**6)],
    client_rate: Annotated[float, option("P", "Probability p that a client takes part in a round.")],
    sample_rate: Annotated[float, option("Q", "Probability q that a participant uses a sample.")],
    delta: Annotated[float, option("D", "In (0, 1), of all rounds together.")],
    epsilon: Annotated[float | None, option("E", "Print the noise that it takes.")] = None,
    sigma: Annotated[float | None, option("S", "Noise of a round's sum: print the epsilon.")] = None,
    clip: Annotated[float, option("C", "Largest norm of a sample's gradient.")] = 1.0,
    rounds: Annotated[int, option("T", "Rounds.", min=1, max=100_000)] = 1,
    clients: Annotated[int | None, option("N", "Population, to warn of a delta above 1/(N D).", min=1)] = None,
    format: Format = "text",
    debug: Debug = False,
) -> None:
    """DP-SGD with random participation: the noise for an epsilon, or the epsilon of a noise, by every analysis.

    Hasircioglu and Gunduz, arXiv 2205.01556: Theorems 4.1, 5.1, 5.2 and Corollary 5.3, composed over rounds.
    """
    from analysis.bounds.random_participation import Participation
    from analysis.bounds.random_participation_report import random_participation_bounds, text
    from analysis.bounds.rows import render

    with in_options():
        who = Participation(local_samples, client_rate, sample_rate, clip)
        row = random_participation_bounds(who, delta, epsilon=epsilon, sigma=sigma, rounds=rounds, clients=clients)
    if (warning := row.get("warning")) is not None:
        echo(f"warning: {warning}", err=True)
    echo(render(row, format, text), nl=False)


_PAPER = "--users 120 --selected 12"
BATCH_PARTITION_EPILOG = examples(
    f"testbed bound batch-partition {_PAPER} --privacy 3 --dropout 0.3",
    f"testbed bound batch-partition {_PAPER} --privacy 6 --dropout dropouts.txt --format json",
    f"testbed bound batch-partition {_PAPER} --privacy 3 --dropout 0.1 --trials 200",
    then="Simulated values are the same every time, and come with a standard error or a 95% interval.",
)


def _theorem2(symbol: str) -> Any:
    return typer.Option(metavar="X", help=f"Theorem 2: {symbol}.", show_default=False, rich_help_panel="Theorem 2")


def bound_batch_partition(
    users: Annotated[int, option("N", "Users, N.", min=1, max=10**6)],
    selected: Annotated[int, option("K", "Users of a round, K.", min=1)],
    privacy: Annotated[int, option("T", "Batch size, T.", min=1)],
    dropout: Annotated[
        str,
        option("P", "Probability that a user drops out: one number, N numbers with commas, or a file with one a line."),
    ],
    simulate: Annotated[
        int | None,
        option(
            "R",
            "Rounds of fair selection to simulate.  \\[default: 10000 for different users, up to 1000; else 0]",
            min=0,
        ),
    ] = None,
    rounds: Annotated[int | None, option("J", "For Theorems 2 and 3.  \\[default: N]", min=1, max=100_000)] = None,
    trials: Annotated[int, option("M", "Participation matrices whose rank is computed.", min=0, max=10**6)] = 0,
    smoothness: Annotated[float | None, _theorem2("rho")] = None,
    convexity: Annotated[float | None, _theorem2("mu")] = None,
    gradient_variance: Annotated[float | None, _theorem2("the mean of sigma_i^2")] = None,
    gradient_bound: Annotated[float | None, _theorem2("G^2")] = None,
    heterogeneity: Annotated[float | None, _theorem2("Gamma = L* - mean of L_i*")] = None,
    initial_distance: Annotated[float | None, _theorem2("E ||x_0 - x*||^2")] = None,
    local_steps: Annotated[int, option("E", "E.", min=1, rich_help_panel="Theorem 2")] = 1,
    format: Format = "text",
    debug: Debug = False,
) -> None:
    """Batch partition (Multi-RoundSecAgg): family size, average cardinality and skipped rounds; how soon random
    selection tells the server everything; how fast training converges.

    Theorems 1, 3 and 2. Theorem 2 is printed where all of its inputs are given.
    """
    from analysis.bounds.batch_partition_report import batch_partition_report, text
    from analysis.bounds.convergence import Problem
    from analysis.bounds.rows import render

    given = {
        "smoothness": smoothness,
        "convexity": convexity,
        "gradient_variance": gradient_variance,
        "gradient_bound": gradient_bound,
        "heterogeneity": heterogeneity,
        "initial_distance": initial_distance,
    }
    missing = [name for name, value in given.items() if value is None]
    if missing and len(missing) < len(given):
        raise ExperimentError(f"--{missing[0].replace('_', '-')}: missing; Theorem 2 needs all of its inputs")
    chances = _dropout(dropout)
    with in_options():
        problem = None if missing else Problem(**{name: value for name, value in given.items() if value is not None})
        row = batch_partition_report(
            users,
            selected,
            privacy,
            chances,
            rounds=rounds,
            simulated_rounds=simulate,
            trials=trials,
            problem=problem,
            local_steps=local_steps,
        )
    echo(render(row, format, text), nl=False)


def _dropout(text: str) -> float | list[float]:
    """One number, numbers with commas, or a file of them."""
    advice = "give e.g. 0.1, or 0.1,0.2, or a file with one number a line"
    try:
        numbers = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        try:
            return [float(line) for line in limits.text(Path(text), limits.NUMBERS_BYTES).split()]
        except limits.TooLarge as why:
            problem = f"{text}: {why}"
        except OSError:
            problem = f"{text!r} is no number, no list of them and no file that can be read"
        except ValueError:
            problem = f"{text} has a line that is no number"
        raise ExperimentError(f"--dropout: {problem}; {advice}") from None
    if not numbers:
        raise ExperimentError(f"--dropout: no numbers; {advice}")
    return numbers[0] if len(numbers) == 1 else numbers
