"""The bounds as text for a terminal: what was given on the first line, then one line a result."""

from collections.abc import Callable, Mapping

from analysis.bounds.random_participation_report import ANALYSES
from analysis.bounds.rows import Row
from analysis.tables import Table, to_json
from analysis.tables import render as render_table

Value = Callable[[Row, str], str]
"""A result by its key, as text."""


def render(row: Row, format: str, text: Callable[[Row], str]) -> str:
    """The row as ``json``, or as ``text`` by one of the functions below; ends in a line feed."""
    return to_json(row, ascii=True) if format == "json" else text(row)


def lotto(row: Row) -> str:
    """What `report.lotto_bounds` found."""
    return _lotto(row, _LOTTO)


def lotto_dp(row: Row) -> str:
    """What `report.lotto_dp_costs` found."""
    return _lotto(row, _LOTTO_DP)


def lotto_plan(row: Row) -> str:
    """What `report.lotto_plan` found."""
    return _lotto(row, _LOTTO_PLAN)


def number(value: float) -> str:
    """Integers in full, others to six digits."""
    return f"{value}" if isinstance(value, int) else f"{value:.6g}"


def _given(row: Row, symbols: Mapping[str, str]) -> str:
    return ", ".join(f"{symbols[key]} = {number(row[key])}" for key in row if key in symbols and row[key] is not None)


def _results(row: Row, labels: Mapping[str, str], value: Value) -> str:
    """One line for each label whose key the row has; a label may name keys of the row in braces."""
    lines = [(label.format_map(row), value(row, key)) for key, label in labels.items() if key in row]
    return render_table(Table((), lines, ruled=False), "text")


# -- Lotto ----------------------------------------------------------------------------------------------------------

_LOTTO_GIVEN = {
    "population": "n",
    "dishonest": "c",
    "participants": "s",
    "over_selection": "a",
    "min_population": "n_min",
    "threshold": "t",
    "eta": "eta",
    "rounds": "R",
    "round_gap": "G",
    "delta": "delta",
    "noise_multiplier": "noise multiplier",
    "dimension": "dimension",
    "scale": "scale",
    "target": "target",
    "sufficiency": "sufficiency",
    "base_rate": "base rate",
}
_LOTTO = {
    "selection_probability": "a client is a candidate",
    "candidates_suffice": "at least s candidates (Theorem 1)",
    "dishonest_fraction_exceeds": "more than {dishonest_allowed} of {participants} dishonest (Theorem 2)",
    "secagg_fails": "SecAgg fails: more than {dishonest_tolerated} dishonest (Corollary 1)",
    "some_round_fails": "SecAgg fails in some round of {rounds}",
    "failing_rounds_expected": "rounds of {rounds} in which it fails, expected",
    "first_round_fails": "it fails in the first round that the server announces",
    "failing_share_expected": "share of announced rounds in which it fails, expected",
    "round_fails_with_beacon": "with a beacon: in the next round, whatever went before",
}
_LOTTO_DP = {
    "selection_probability": "a client is a candidate",
    "client_centric_epsilon": "epsilon, client-centric (Corollary 2)",
    "parallel_lists_epsilon": "epsilon, client-centric, several lists a round",
    "server_centric_epsilon": "epsilon, server-centric (Corollary 3)",
    "insecure_epsilon": "epsilon, the server chooses",
}
_LOTTO_PLAN = {
    "secagg_fails": "SecAgg fails, as given",
    "candidates_suffice": "at least s candidates, as given",
    "smallest_min_population": "smallest n_min",
    "smallest_min_population_for_eta": "smallest n_min for eta",
    "largest_exclusion": "largest exclusion d",
    "largest_exclusion_for_base_rate": "largest exclusion d for the base rate",
    "smallest_threshold": "smallest threshold t",
    "smallest_over_selection": "smallest over-selection a",
    "largest_over_selection": "largest over-selection a",
}


def _lotto(row: Row, labels: Mapping[str, str]) -> str:
    return f"{_given(row, _LOTTO_GIVEN)}\n{_results(row, labels, _lotto_value)}"


def _lotto_value(row: Row, key: str) -> str:
    """A result with what belongs to it."""
    if row[key] is None:
        return _none(row, key)
    beside = {f"{key}_clients": "clients", key.replace("epsilon", "k"): "k", key.replace("epsilon", "r"): "r"}
    more = [f"{name} = {number(row[other])}" for other, name in beside.items() if other != key and other in row]
    if row[key] == 0.0 and row.get(f"{key}_log10") is not None:
        return f"10^{row[f'{key}_log10']:.1f}"
    if f"{key}_reason" in row:
        more.append(row[f"{key}_reason"])
    return f"{number(row[key])}{'  (' + ', '.join(more) + ')' if more else ''}"


def _none(row: Row, key: str) -> str:
    return f"none: {row[f'{key}_reason']}"


# -- batch partition ------------------------------------------------------------------------------------------------

_BATCH_PARTITION = {
    "family_size": "sets of users that a round may take, R",
    "average_cardinality": "average cardinality C (Theorem 1)",
    "unavailable_round": "a round is skipped: no row of B available",
    "simulated_cardinality": "C, simulated, {simulated_rounds} rounds",
    "simulated_unavailable": "a round is skipped, simulated",
    "theorem3_uniform": "random: full rank after N rounds (Theorem 3)",
    "theorem3_independent": "bernoulli: the same ((30) without o(1))",
    "full_rank_uniform": "random: full rank after {full_rank_rounds} rounds, simulated",
    "full_rank_uniform_median": "random: rounds until full rank, median",
    "full_rank_independent": "bernoulli: full rank after {full_rank_rounds} rounds, simulated",
    "full_rank_independent_median": "bernoulli: rounds until full rank, median",
    "theorem2_printed": "E[L] - L* after {rounds} rounds, as printed (8)",
    "theorem2_repaired": "the same, for batches and skipped rounds",
}


def batch_partition(row: Row) -> str:
    """What `batch_partition_report` found."""
    dropout = number(row["dropout"])
    if "dropout_lowest" in row:
        dropout = f"{number(row['dropout_lowest'])} to {number(row['dropout_highest'])}, {dropout} on average"
    sizes = str(row["privacy"])
    if row["largest_batch"] > row["privacy"]:
        sizes += f" to {row['largest_batch']}"
    given = f"N = {row['users']}, K = {row['selected']}, {row['batches']} batches of {sizes}, p = {dropout}"
    return f"{given}\n{_results(row, _BATCH_PARTITION, _batch_partition_value)}"


def _batch_partition_value(row: Row, key: str) -> str:
    if row[key] is None:
        return _none(row, key)
    if key == "simulated_cardinality":
        return f"{number(row[key])} +- {row['simulated_error']:.2g}"
    if f"{key}_low" in row:
        return f"{number(row[key])}  (95%: {number(row[f'{key}_low'])} to {number(row[f'{key}_high'])})"
    return number(row[key])


# -- verifiable batch partition -------------------------------------------------------------------------------------

_VERIFIABLE_GIVEN = {
    "population": "n",
    "dishonest": "c",
    "participants": "K",
    "privacy": "T",
    "over_selection": "a",
    "min_population": "n_min",
    "eta": "eta",
    "threshold": "t",
    "dropout": "dropout",
}
_VERIFIABLE = {
    "selection_probability": "a batch of {largest_batch} is a candidate",
    "candidates_suffice": "at least {batches_wanted} of {batches} batches are candidates",
    "candidates_suffice_denied": "the same, when {dishonest} batches are denied",
    "dishonest_fraction_exceeds": "more than {dishonest_allowed} of {participants} dishonest",
    "dishonest_fraction_exceeds_random": "- when batches are drawn at random",
    "secagg_fails": "SecAgg fails: more than {dishonest_tolerated} dishonest",
    "secagg_fails_random": "- when batches are drawn at random",
    "fewer_than_2_honest": "some batch has 1 honest member",
}
_EXACT = ("selection_probability", "candidates_suffice", "candidates_suffice_denied")
_TINY = 1e-300  # what reads 0 is below it


def verifiable(row: Row) -> str:
    """What `verifiable_batch_partition_report` found."""
    several = range(3, row["privacy"] + 1)
    honest = {f"fewer_than_{least}_honest": f"some batch has 1 to {least - 1} honest members" for least in several}
    return f"{_given(row, _VERIFIABLE_GIVEN)}\n{_results(row, _VERIFIABLE | honest, _verifiable_value)}"


def _verifiable_value(row: Row, key: str) -> str:
    """A probability; of an enclosed one both sides."""
    if key in _EXACT:
        return number(row[key])
    if key.endswith("_random"):
        return f"at most {number(row[key] or _TINY)}"
    if f"{key}_attained" not in row:
        return f"{number(row[key])}{'  (at most)' if row[f'{key}_by'] == 'union bound' else ''}"
    digits = row[f"{key}_log10"]
    if digits is None:
        return "0  (it cannot happen)"
    most = f"10^{digits:.1f}" if row[key] == 0.0 else number(row[key])
    members = row[f"{key}_attained_members"]
    if row[f"{key}_attained"] == 0.0:
        return f"at most {most}"
    return f"at most {most}  ({number(row[f'{key}_attained'])} with {members} in a batch)"


# -- random participation -------------------------------------------------------------------------------------------

_SOUNDNESS = {
    "guarantee": "the guarantee",
    "other-mechanism": "a guarantee of another algorithm",
    "as-published": "as published, not a guarantee",
    "lower-bound": "nothing can guarantee less",
}
_PARTICIPATION_GIVEN = {"local_samples": "d", "client_rate": "p", "sample_rate": "q", "clip": "C", "delta": "delta"}


def random_participation(row: Row) -> str:
    """What `random_participation_report` found."""
    given, wanted = ("epsilon", "sigma") if "epsilon" in row else ("sigma", "epsilon")
    first = ", ".join(f"{symbol} = {row[key]:g}" for key, symbol in _PARTICIPATION_GIVEN.items())
    lines = [f"{first}, T = {row['rounds']}, {given} = {row[given]:g}"]
    width = max(len(one.name) for one in ANALYSES)
    for one in ANALYSES:
        value = row[f"{one.name}_{wanted}"]
        shown = ("none" if wanted == "sigma" else "inf") if value is None else f"{value:.5g}"
        lines.append(f"{one.name:{width}}  {wanted} {shown:>8}  {_SOUNDNESS[one.soundness]} ({one.source})")
    return "\n".join([*lines, ""])
