"""Summary of one run as a flat object, for scripts and for the overhead table."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from analysis.comparison.losses import counts
from analysis.comparison.measures import outcomes_of, per_round
from analysis.comparison.targets import named_targets
from analysis.comparison.time_to_target import reach
from analysis.multi_round import aggregation_cardinality, fairness_gap, strong_privacy
from analysis.multi_round.kept import weak_privacy_of
from analysis.multi_round.participation import participation_matrix
from analysis.statistics import mean_interval, per_update_interval
from analysis.tables import plain, protocol_name
from testbed.records import RunRecords
from testbed.records.reader import counted, format_end_reasons, format_refusals
from testbed.records.vocabulary import DIVERGED, is_language, privacy_caveats

PRIVACY_TIME_LIMIT_S = 5.0


def summarise(run: RunRecords, *, privacy_time_limit_s: float = PRIVACY_TIME_LIMIT_S) -> dict[str, Any]:
    """Return the run as a flat dictionary of JSON values; unknown values (nothing completed, not measured) are None.

    ``mean_...`` and ``..._per_round`` are means over completed rounds, ``..._per_update`` the costs of all rounds over
    the number of completed rounds (see `analysis.comparison.measures`). Times are seconds of the run's clock, except
    ``wall_s``; traffic is in bytes; ``transport_bytes_per_round`` comes on top of ``server_bytes_per_round``.

    - ``dropouts`` counts clients that dropped out within a stage, ``dropped_by_stage.STAGE`` those of one stage,
      ``offline`` clients that were offline at their first question of a round, ``late`` answers after the deadline (see
      `analysis.comparison.losses`), ``participants_lost`` participants without an update in the sum, for any reason.
    - ``refusals`` counts the recorded refusals. ``unexpected_refusals`` describes them, except those of updates that
      are not finite, in a run without an adversary. ``diverged`` gives the number of clients and the rounds of updates
      that are not finite. ``crashes`` counts crashes of clients' code (with ``on_crash: drop``).
    - ``reasons`` says why rounds were aborted or skipped, ``reasons.NAME`` counts the rounds for each reason.
      ``behind_rounds`` counts rounds of a live run in which the machine could not keep up, and ``behind_factor`` is
      their duration over the duration due to links and devices (None: no such round).
    - ``final_attack_success`` is None unless clients poison samples for a target, ``final_perplexity`` and
      ``best_perplexity`` unless the task is to predict the next word, ``final_client_accuracy_mean``,
      ``..._worst_decile`` and ``..._std`` unless the accuracy of single clients is measured. ``training`` is ``real``
      or ``simulated``.
    - Of runs with a privacy ledger: ``noise_multiplier`` (configured, or computed for an epsilon), ``epsilon_max`` and
      ``epsilon_median`` over the honest clients in the ledger, ``privacy_caveats`` (limits of these numbers: a seed,
      reported losses).
    - ``reached.TARGET`` says whether the run has reached a target of its experiment, ``time_to_target_s.TARGET`` and so
      on when, since the start (None: not reached); ``stopped`` says why the budget or a target ended the run.

    Args:
        run: the records; the run may be unfinished.
        privacy_time_limit_s: seconds of processor time for the search for the weak multi-round privacy. If they do not
            suffice, ``multi_round_privacy_weak_certified`` is false, ``multi_round_privacy_weak`` is the smallest group
            so far, and ``multi_round_privacy_weak_lower_bound`` is the proven bound.
    """
    experiment, rounds = run.experiment, per_round(run)
    done = rounds["outcome"] == "completed"
    completed, failed = rounds[done], outcomes_of(rounds).loc[["skipped", "aborted"]]
    ends = list(zip(rounds["outcome"], rounds["reason"], strict=True))
    refused = run.events.loc[run.events["kind"] == "refusal", "detail"].tolist()
    unexpected = [detail for detail in refused if not detail.startswith(f"{DIVERGED}:")]
    lost = counts(run)
    measured = rounds["accuracy"].dropna()
    poisoned = run.rounds["attack_success"].dropna()
    costs = {
        "mean_round_s": mean_interval(completed["round_s"]),
        "mean_client_s": mean_interval(completed["client_s"]),
        "server_bytes_per_round": mean_interval(completed["server_bytes"]),
        "client_bytes_per_round": mean_interval(completed["client_bytes"]),
        "transport_bytes_per_round": mean_interval(completed["transport_bytes"]),
        "round_s_per_update": per_update_interval(rounds["round_s"], done),
        "server_bytes_per_update": per_update_interval(rounds["server_bytes"], done),
    }
    summary = {
        "label": run.label,
        "name": experiment.get("name"),
        "seed": experiment.get("seed"),
        "selection": protocol_name(experiment.get("selection")),
        "aggregation": protocol_name(experiment.get("aggregation")),
        "population": int(experiment["population"]),
        "rounds_completed": len(completed),
        "rounds_skipped": failed["rounds"]["skipped"],
        "rounds_aborted": failed["rounds"]["aborted"],
        **{key: value for name, cost in costs.items() for key, value in cost.named(name).items()},
        "failed_rounds_s": failed["seconds"].sum(),
        "failed_rounds_bytes": failed["bytes"].sum(),
        "server_compute_s_per_round": mean_interval(completed["server_compute_s"]).mean,
        "participants_mean": mean_interval(completed["participants"]).mean,
        "survivors_mean": mean_interval(completed["survivors"]).mean,
        "participants_lost": (~run.participation["survived"].astype(bool)).sum(),
        "dropouts": lost["asked_dropped"].sum(),
        "offline": lost["asked_offline"].sum(),
        "late": lost["asked_late"].sum(),
        **{f"dropped_by_stage.{stage}": dropped for stage, dropped in lost["asked_dropped"].items()},
        "refusals": len(refused),
        "unexpected_refusals": None if experiment.get("adversary") else format_refusals(unexpected) or None,
        "diverged": diverged(run) or None,
        "crashes": (run.events["kind"] == "crash").sum(),
        "reasons": format_end_reasons(ends) or None,
        **{f"reasons.{name}": count for name, count in counted(ends).items()},
        **_behind(run),
        "final_accuracy": measured.iloc[-1] if len(measured) else None,
        "best_accuracy": measured.max() if len(measured) else None,
        **_perplexity(run, rounds["loss"].dropna()),
        "final_attack_success": poisoned.iloc[-1] if len(poisoned) else None,
        **_client_accuracy(run.rounds),
        "training": run.value("workload.training", "real"),
        **_multi_round(run, privacy_time_limit_s),
        **_spending(run),
        **_targets(run),
        "stopped": run.why_stopped or None,
        "clock": run.value("time.clock", "virtual"),
        "virtual_s": rounds["ended_s"].iloc[-1] if len(rounds) else 0.0,
        "wall_s": run.wall_s,
    }
    values: dict[str, Any] = plain(summary)
    return values


def _client_accuracy(rounds: pd.DataFrame) -> dict[str, Any]:
    """Return the accuracy over clients of the last round that measured it."""
    columns = ["client_accuracy_mean", "client_accuracy_worst_decile", "client_accuracy_std"]
    measured = rounds[columns].dropna()
    last: Mapping[Any, Any] = (measured.to_dict("records") or [dict.fromkeys(columns)])[-1]
    return {
        "final_client_accuracy_mean": last["client_accuracy_mean"],
        "final_client_accuracy_worst_decile": last["client_accuracy_worst_decile"],
        "final_client_accuracy_std": last["client_accuracy_std"],
    }


def _behind(run: RunRecords) -> dict[str, Any]:
    """Return the number of rounds that the machine delayed (see `testbed.network.live.server`), and by which factor."""
    events, rounds = run.events, run.rounds
    held_up = rounds[rounds["round"].isin(events.loc[events["kind"] == "behind-schedule", "round"])]
    took_s = (held_up["ended_s"] - held_up["started_s"]).sum()
    due_s = took_s - held_up["behind_s"].sum()
    return {"behind_rounds": len(held_up), "behind_factor": took_s / due_s if due_s > 0 else None}


def diverged(run: RunRecords) -> str:
    """Return how many clients had updates that were not finite, in which rounds, and the remedy; empty if none had."""
    refusals = run.events[(run.events["kind"] == "refusal") & run.events["detail"].str.startswith(f"{DIVERGED}:")]
    if refusals.empty:
        return ""
    clients = set(refusals["party"])
    taking_part = clients | {f"client:{client}" for client in run.participation["client"]}
    first, last, count = refusals["round"].min(), refusals["round"].max(), refusals["round"].nunique()
    among = "" if count == last - first + 1 else f"{count} of "
    rounds = f"round {first}" if first == last else f"{among}rounds {first} to {last}"
    rate = run.value("workload.learning_rate")
    key = "" if rate is None else f" (workload.learning_rate is {rate:g})"
    return (
        f"{len(clients)} of {len(taking_part)} clients had an update that is not finite in {rounds}; lower the "
        f"learning rate{key}"
    )


def _perplexity(run: RunRecords, losses: pd.Series) -> dict[str, Any]:
    """Return exp(mean loss of a word); None if nothing was measured or the task is not to predict words."""
    predicts_words = is_language(str(run.value("workload.dataset")))
    is_known = predicts_words and len(losses) > 0
    return {
        "final_perplexity": np.exp(losses.iloc[-1]) if is_known else None,
        "best_perplexity": np.exp(losses.min()) if is_known else None,
    }


def _multi_round(run: RunRecords, time_limit_s: float) -> dict[str, Any]:
    """Return F, C and T of the participation matrix (Multi-RoundSecAgg, section 3.2, equation (5), Remark 1).

    Values are None if there is nothing to measure: F and C before the first round, T before the first sum.
    """
    matrix = participation_matrix(run, compact=True)
    weak = weak_privacy_of(run, matrix, time_limit_s) if matrix.any() else None
    return {
        "fairness_gap": fairness_gap(matrix) if len(matrix) else None,
        "fairness_gap_completed": fairness_gap(matrix, completed_only=True) if weak else None,
        "aggregation_cardinality": aggregation_cardinality(matrix) if len(matrix) else None,
        "multi_round_privacy_strong": strong_privacy(matrix) if weak else None,
        "multi_round_privacy_weak": weak.value if weak else None,
        "multi_round_privacy_weak_certified": weak.certified if weak else None,
        "multi_round_privacy_weak_lower_bound": weak.lower_bound if weak else None,
    }


def _targets(run: RunRecords) -> dict[str, Any]:
    """Return when the run reached the targets that its experiment names."""
    by_target = {target.column: reach(run, target) for target in named_targets([run])}
    when = {name: at if at.reached else None for name, at in by_target.items()}
    return {
        **{f"reached.{name}": at.reached for name, at in by_target.items()},
        **{f"time_to_target_s.{name}": at and at.time_s for name, at in when.items()},
        **{f"rounds_to_target.{name}": at and at.rounds for name, at in when.items()},
        **{f"server_bytes_to_target.{name}": at and at.server_bytes for name, at in when.items()},
        **{f"client_bytes_to_target.{name}": at and at.client_bytes for name, at in when.items()},
    }


def _spending(run: RunRecords) -> dict[str, Any]:
    """Return the content of the privacy ledger; empty for runs without noise in the aggregation.

    None stands for an infinite epsilon.
    """
    rows = run.ledger_of_honest_clients()
    if rows.empty:
        return {}
    last = rows.groupby("client").last()
    return {
        "noise_multiplier": run.value("provenance.noise_multiplier"),
        "privacy_delta": rows["delta"].iloc[0],
        "privacy_clients": len(last),
        "epsilon_max": last["epsilon"].max(),
        "epsilon_median": last["epsilon"].median(),
        "planned_epsilon_max": last["planned_epsilon"].max(),
        "colluding_epsilon_max": last["colluding_epsilon"].max(),
        "privacy_caveats": "; ".join(privacy_caveats(run.experiment)) or None,
    }
