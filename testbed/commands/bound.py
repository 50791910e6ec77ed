"""``testbed bound`` and ``testbed plan``: the papers' guarantees as numbers, and the parameters that meet a target."""

from typing import Annotated

import typer

from testbed.commands.bound_options import (
    MOST_CLIENTS,
    Dishonest,
    Format,
    MinPopulation,
    OverSelection,
    Participants,
    Population,
    Threshold,
    in_options,
    threshold_of,
)
from testbed.commands.invocation import Debug, examples, group
from testbed.commands.terminal import echo
from testbed.errors import ExperimentError

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
    eta: Annotated[
        float, typer.Option(metavar="E", help="How many times their due share dishonest participants may reach.")
    ] = 10.0,
    threshold: Threshold = "0.7",
    rounds: Annotated[
        int | None,
        typer.Option(
            metavar="R",
            min=1,
            max=_NUMBERS,
            show_default=False,
            help="Also over so many rounds, of which the server chooses which happen.",
        ),
    ] = None,
    round_gap: Annotated[
        int | None,
        typer.Option(
            metavar="G",
            min=1,
            max=_NUMBERS,
            show_default=False,
            help="How far above the last round that it has heard "
            "of a client accepts one (max_round_gap).  \\[default: any later one]",
        ),
    ] = None,
    format: Format = "text",
    debug: Debug = False,
) -> None:
    """Lotto in one round: enough candidates, too many dishonest participants, SecAgg broken.

    Theorem 1, Theorem 2 and Corollary 1 of the Lotto paper; with --rounds, the last one over the rounds that a server
    announces.
    """
    from analysis.bounds import text
    from analysis.bounds.report import lotto_bounds

    if round_gap is not None and rounds is None:
        raise ExperimentError("--round-gap: needs --rounds, over which it holds")
    with in_options():
        row = lotto_bounds(
            population=population,
            dishonest=dishonest,
            participants=participants,
            over_selection=over_selection,
            min_population=min_population,
            eta=eta,
            threshold=threshold_of(threshold),
            rounds=rounds,
            round_gap=round_gap,
        )
    echo(text.render(row, format, text.lotto), nl=False)


@bound.command("lotto-dp", epilog=_BOUND_LOTTO_DP_EPILOG)
def bound_lotto_dp(
    population: Population,
    dishonest: Dishonest,
    participants: Annotated[
        int, typer.Option(metavar="S", min=1, max=_SUMMED, help="Participants of a round, s.", show_default=False)
    ],
    rounds: Annotated[int, typer.Option(metavar="R", min=1, max=_ROUNDS, help="Rounds, R.", show_default=False)],
    noise_multiplier: Annotated[
        float, typer.Option(metavar="Z", help="Noise in the sum over the clipping norm.", show_default=False)
    ],
    over_selection: OverSelection = 1.3,
    min_population: MinPopulation = None,
    maximum_population: Annotated[
        int | None,
        typer.Option(
            metavar="M",
            min=1,
            max=MOST_CLIENTS,
            show_default=False,
            help="n_max, clients that there could be at all, N or more (server-centric).  "
            "\\[default: 1000000000, or N]",
        ),
    ] = None,
    threshold: Threshold = "0.7",
    delta: Annotated[
        float | None, typer.Option(metavar="D", help="In (0, 1).  \\[default: 1/N]", show_default=False)
    ] = None,
    dimension: Annotated[
        int, typer.Option(metavar="D", min=1, help="Coordinates of an update, padded to a power of two.")
    ] = 2**20,
    scale: Annotated[float, typer.Option(metavar="K", help="The clipping norm in integer steps.")] = 2.0**15,
    parallel_lists: Annotated[
        bool,
        typer.Option(
            "--parallel-lists", metavar="", help="Also for a server with several participant lists in a round."
        ),
    ] = False,
    format: Format = "text",
    debug: Debug = False,
) -> None:
    """Lotto over a training with distributed differential privacy (Skellam): the epsilon that is guaranteed.

    Corollaries 2 (client-centric) and 3 (server-centric) of the Lotto paper, with the k and r that minimise it, and
    the epsilon when a malicious server chooses the participants.
    """
    from analysis.bounds import text
    from analysis.bounds.lotto_dp import Training
    from analysis.bounds.report import lotto_dp_costs
    from testbed.privacy.accounting import Skellam

    with in_options():
        training = Training(
            dishonest=dishonest,
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
    echo(text.render(row, format, text.lotto_dp), nl=False)


@plan.command("lotto", epilog=_PLAN_LOTTO_EPILOG)
def plan_lotto(
    population: Population,
    dishonest: Dishonest,
    participants: Participants,
    target: Annotated[
        float, typer.Option(metavar="P", help="What Pr[SecAgg fails] must not exceed.", show_default=False)
    ],
    over_selection: OverSelection = 1.3,
    min_population: MinPopulation = None,
    threshold: Threshold = "0.7",
    sufficiency: Annotated[
        float, typer.Option(metavar="P", help="What Pr[|C| >= s] must reach, for the over-selection factor.")
    ] = 0.99,
    base_rate: Annotated[
        float | None,
        typer.Option(metavar="F", help="Largest fraction of dishonest clients after refinement.", show_default=False),
    ] = None,
    eta: Annotated[
        float | None,
        typer.Option(metavar="E", help="Also plan n_min for Pr\\[x/s > E c/n] <= target.", show_default=False),
    ] = None,
    format: Format = "text",
    debug: Debug = False,
) -> None:
    """Lotto's parameters for a target: smallest n_min and threshold, largest exclusion, range of over-selection."""
    from analysis.bounds import text
    from analysis.bounds.report import lotto_plan

    with in_options():
        row = lotto_plan(
            population=population,
            dishonest=dishonest,
            participants=participants,
            over_selection=over_selection,
            min_population=min_population,
            threshold=threshold_of(threshold),
            target=target,
            sufficiency=sufficiency,
            base_rate=base_rate,
            eta=eta,
        )
    echo(text.render(row, format, text.lotto_plan), nl=False)
