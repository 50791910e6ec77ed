"""The privacy ledger of a run: opened for an experiment, entered after every round, rebuilt from the records."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from testbed.aggregation.kit.ring_elements import NoisyParameters
from testbed.engine.plan import RunPlan
from testbed.engine.round import Outcome
from testbed.errors import ExperimentError
from testbed.network.contract import no_ids
from testbed.network.exchanges import Exchanges
from testbed.privacy.ledger import Ledger, NoiseShares, PrivacyCharge, PrivacyLedger
from testbed.privacy.matrix.accounting import CorrelatedAccountant
from testbed.privacy.matrix.ledger import CorrelatedLedger, ServerCharge
from testbed.privacy.section import PrivacySection, Unit
from testbed.records import RunDirectory
from testbed.records.tables import privacy_table, read_chunks, recorded_files
from testbed.workload.contract import Workload


class PrivacyLedgerRecorder:
    """The recorder of one run's privacy ledger; `open_ledger` makes it.

    Args:
        ledger: the clients' ledger.
        charge: the privacy cost of a round, by client.
        plan: the run's plan.
    """

    def __init__(self, ledger: PrivacyLedger, charge: PrivacyCharge | ServerCharge, plan: RunPlan) -> None:
        self.ledger = ledger
        self._charge = charge
        self._adversary = plan.experiment.adversary
        self._skipped = plan.adversary is not None and bool(plan.adversary.skips_noise)
        self._last_stage = plan.aggregation.stages[-1]
        # From a seed, a repeated round adds the same noise and releases the same sum: nothing more to charge.
        self._noise_repeats = not plan.randomness.secrets_from_system
        self._records: RunDirectory | None = None
        self._begun = 0  # the last round with a last stage that has begun

    @property
    def spent(self) -> str:
        """Why no further round may begin (`Ledger.spent`); empty while one may."""
        return self.ledger.spent

    def enter(self, round_number: int, outcome: Outcome, exchanges: list[Exchanges]) -> pa.Table:
        """Enter a round; returns its `privacy` rows.

        Args:
            round_number: the round.
            outcome: how it went.
            exchanges: its stages.
        """
        # A round without a sum is charged if anybody was asked in the last stage: the server may know the sum anyway.
        recipients = np.unique(
            np.concatenate([no_ids(), *(s.clients for s in exchanges if s.stage == self._last_stage)])
        )
        noise = None if outcome.aggregate is None else outcome.aggregate.noise
        skipping = self._skipping(round_number)
        spent = self._charge.of_round(outcome.participants, outcome.survivors, noise, recipients, skipping)
        return privacy_table(round_number, self.ledger.spend(spent, round_number))

    def enter_attempts(self, round_number: int) -> list[pa.Table]:
        """Charge interrupted attempts at a round before it is run again; return their `privacy` rows.

        Nothing is charged if the noise is derived from a seed: the repeated round then releases the same values again.
        """
        self._begun = 0
        if self._records is None or self._noise_repeats:
            return []
        entered = [self._attempted(round_number, attempt) for attempt in self._records.attempts_at(round_number)]
        if self.spent:  # no later round will follow that could have these numbers
            entered += [
                self._attempted(round_number, attempt) for attempt in self._records.later_attempts(round_number)
            ]
        return entered

    def _attempted(self, round_number: int, participants: npt.NDArray[np.int64]) -> pa.Table:
        spent = self._charge.of_attempt(participants, self._skipping(round_number))
        return privacy_table(round_number, self.ledger.spend(spent, round_number))

    def asking(self, stage: str, round_number: int, participants: npt.NDArray[np.int64]) -> None:
        """Record the participants on disk before the last stage of a round begins, for `enter_attempts`.

        Raises:
            RunError: the participants cannot be recorded; then no client may be asked.
        """
        if self._records is None or self._noise_repeats or stage != self._last_stage or self._begun == round_number:
            return
        # On disk before any client is asked: from the last stage on, the server may learn the sum.
        self._records.begin_last_stage(round_number, participants)
        self._begun = round_number

    def keep_in(self, records: RunDirectory) -> None:
        """Enter the rounds that are on record, when a run is resumed; attempts at others are kept there."""
        self._records = records
        self.ledger.replay(_rounds(records))

    def _skipping(self, round_number: int) -> bool:
        return self._skipped and self._adversary is not None and self._adversary.attacks(round_number)


def open_ledger(plan: RunPlan, workload: Workload) -> PrivacyLedgerRecorder | None:
    """Return the recorder of a new run's ledger; None if the aggregation adds no noise.

    Args:
        plan: the run's plan.
        workload: its workload.

    Raises:
        ExperimentError: there is a budget without noise, or not even one round is certain to stay within it.
    """
    section = plan.experiment.privacy or PrivacySection()
    noise = plan.noise_plan(workload.dimension)
    if noise is None:
        if section.budget is not None:
            raise ExperimentError(_no_noise(plan, section.budget))
        return None
    records = records_of(noise.accountant.unit, plan, workload)
    kind = CorrelatedLedger if isinstance(noise.accountant, CorrelatedAccountant) else Ledger
    ledger = kind(noise, plan.experiment.population, section.delta_for(records), section.budget)
    # Before the first round: a budget that not even one round keeps is a mistake in the experiment.
    if ledger.spent and section.budget is not None:
        raise ExperimentError(
            f"privacy.budget: {section.budget:g} is less than one round may cost, epsilon {ledger.after_next:.4g} at "
            f"delta {ledger.delta:.3g} with {100 * noise.min_share:.3g}% of the planned noise, the least that a sum "
            "can have; allow more, or add more noise"
        )
    # The server adds correlated noise, so only clients in a sum that was released are charged.
    charge = ServerCharge() if kind is CorrelatedLedger else PrivacyCharge(noise, plan.dishonest)
    return PrivacyLedgerRecorder(ledger, charge, plan)


def charged_again(attempts: list[pa.Table]) -> str:
    """Return the event text for attempts that are charged, given their `privacy` rows."""
    clients = len(np.unique(np.concatenate([table["client"].to_numpy() for table in attempts])))
    times = "once" if len(attempts) == 1 else f"{len(attempts)} times"
    return (
        f"this round's last stage had begun {times} before, with other noise, and was not recorded: {clients} clients "
        "are charged for it"
    )


def check_budget(plan: RunPlan) -> None:
    """Raise `ExperimentError` for a budget beside a built-in aggregation without noise; it takes no data to tell."""
    section, parameters = plan.experiment.privacy, plan.aggregation_parameters
    if section is None or section.budget is None:
        return
    if isinstance(parameters, NoisyParameters) and parameters.noise is None and plan.noise_plan(1) is None:
        raise ExperimentError(_no_noise(plan, section.budget))


def _no_noise(plan: RunPlan, budget: float) -> str:
    return (
        f"privacy.budget: {budget:g}, but aggregation {plan.experiment.aggregation.protocol} adds no "
        "noise here, so that any round exceeds it; give it noise, or leave out the budget"
    )


def records_of(unit: Unit, plan: RunPlan, workload: Workload) -> int:
    """Return the number of protected records.

    Args:
        unit: the unit of privacy.
        plan: the run's plan.
        workload: its workload.
    """
    return plan.experiment.population if unit == "client" else int(workload.sample_counts.sum())


def warnings(plan: RunPlan, workload: Workload) -> list[str]:
    """Return warnings about the `privacy` section.

    Args:
        plan: the run's plan.
        workload: its workload.

    Raises:
        ExperimentError: as `open_ledger`.
    """
    section = plan.experiment.privacy
    if section is None:
        return []
    recorder = open_ledger(plan, workload)
    if recorder is None:
        return ["privacy: this aggregation adds no noise, so there is nothing to account; the section has no effect"]
    unit = recorder.ledger.plan.accountant.unit
    line = section.warning(unit, records_of(unit, plan, workload))
    return [line] if line else []


def _rounds(records: RunDirectory) -> Iterator[dict[str, Any]]:
    """Yield the recorded `privacy` rows, one round at a time."""
    columns = ["round", "client", *NoiseShares._fields]
    files = recorded_files(records.path, "privacy", records.checkpoint())
    for chunk in read_chunks(files, "privacy", columns):
        rounds = chunk["round"].to_numpy()
        _, begins = np.unique(rounds, return_index=True)
        for begin, end in zip(begins, [*begins[1:], len(rounds)], strict=True):
            rows = chunk.slice(begin, end - begin)
            yield {name: rows[name].to_numpy() for name in columns}
