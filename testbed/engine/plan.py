"""The plan of a run: the parts of an experiment, put together before any client exists."""

import hashlib
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from testbed.adversary.section import Adversary
from testbed.aggregation.buffered import Staleness, UpdateKeeper
from testbed.aggregation.contract import AggregationParameters, uses_symbolic_masks
from testbed.aggregation.kit.ring_elements import noise_of
from testbed.aggregation.server_optimizers import server_optimizer
from testbed.crypto.memo import Memo
from testbed.crypto.signatures import SigningKey
from testbed.emulation.availability import Availability, Scheduled, availability_model
from testbed.emulation.client_classes import ClassMembers, draw_members
from testbed.emulation.compute.cost import REFERENCE_COSTS, ComputeModel
from testbed.emulation.devices import speed_factors
from testbed.emulation.links import ClientLinks, LinkGroup, client_links
from testbed.emulation.traces.schedule import Schedule
from testbed.engine.canaries import canary_roles
from testbed.engine.registry import aggregation_protocol, selection_protocol
from testbed.engine.training_checks import check_losses, check_training, needing_losses
from testbed.errors import ExperimentError, excludes
from testbed.experiment.inputs import secrets_context
from testbed.experiment.schema import Experiment, check_schedule, check_stages
from testbed.network.contract import Timing
from testbed.parties.client import Environment, RoleSpec
from testbed.parties.participation import OwnParticipation, ParticipationLog
from testbed.parties.pinned_batches import PinnedBatches
from testbed.parties.pki import Directory
from testbed.parties.round_beacon import RoundBeacon
from testbed.plugins.classes import check_members
from testbed.privacy.noise_plan import NoisePlan
from testbed.privacy.participation_pattern import ParticipationPattern
from testbed.privacy.section import NEEDS_LOSSES, PrivacySection
from testbed.randomness import Randomness
from testbed.training import Broadcast, Trainer
from testbed.workload.client_algorithm import STATELESS, ClientAlgorithm, TaskInfo
from testbed.workload.client_states import ClientStates
from testbed.workload.contract import (
    DriftCorrectedWorkload,
    LabelledWorkload,
    PartlySharedWorkload,
    PersonalWorkload,
    Workload,
)
from testbed.workload.drift_correction import drift_correction
from testbed.workload.local_layers import LocalLayers


class RunPlan:
    """The parts of an experiment, before any client exists. Cheap to make, in any process.

    Args:
        experiment: one point (no sweep).
        simulation_seed: replaces the experiment's seed if it has none.

    Raises:
        ExperimentError: a user-defined class cannot be found, the experiment names an unknown stage, or the aggregation
            cannot take as many participants as the selection may choose.
    """

    def __init__(self, experiment: Experiment, simulation_seed: int) -> None:
        self.experiment = experiment
        seed = experiment.seed if experiment.seed is not None else simulation_seed
        # The simulation always has a seed; protocol secrets follow from it only if the experiment names it.
        self.randomness = Randomness(
            seed, secrets_from_system=experiment.seed is None, context=secrets_context(experiment)
        )
        costs = {**REFERENCE_COSTS, **experiment.time.costs}
        self.compute = ComputeModel(experiment.time.compute == "measured", costs)
        self.adversary: Adversary | None = None
        self.broadcast = Broadcast()
        if experiment.adversary is None:
            self.selection = selection_protocol(experiment.selection, experiment.population)
            self.aggregation = aggregation_protocol(experiment.aggregation)
        else:
            honest = aggregation_protocol(experiment.aggregation)
            colluders = honest.guarantees(experiment.selection.participants).max_colluders
            # One colluder more than the protocol tolerates: the smallest coalition from which an attack may succeed.
            self.adversary = Adversary(
                experiment.adversary, experiment.population, experiment.rounds, self.randomness, max(1, colluders + 1)
            )
            with_attacks = self.adversary.with_attacks
            self.selection = selection_protocol(experiment.selection, experiment.population, with_attacks)
            self.aggregation = aggregation_protocol(experiment.aggregation, with_attacks)
            self.broadcast = with_attacks(Broadcast, {"train"})()
            # After all protocols are made: each has told by then which attacks apply to it.
            self.adversary.check_used(self.roles)
            self.adversary.check_learning(experiment.workload)
            self._check_broadcast()
        for section, protocol in (("selection", self.selection), ("aggregation", self.aggregation)):
            for spec in protocol.roles:
                check_members(spec.role, f"{section}.protocol: role {spec.role.__name__}")
        check_stages(experiment, self.stages)
        self.aggregation_parameters: AggregationParameters = self.aggregation.parameters
        self.server_optimizer = server_optimizer(self.aggregation_parameters.server_optimizer)
        self.maximum_participants = self.selection.maximum_participants
        try:
            self.aggregation_parameters.check(self.maximum_participants)
        except ValueError as error:
            raise ExperimentError(
                f"aggregation.{error}; a round of this selection may have {self.maximum_participants} participants or "
                f"as few as {experiment.selection.participants}: a number must be allowed for both"
            ) from None
        self.minimum_participants = self.selection.minimum_participants
        self.seed = seed
        self.experiment_id = hashlib.sha256(b"testbed/experiment/v1" + experiment.name.encode()).digest()[:16]

    @cached_property
    def beacon_key(self) -> SigningKey | None:
        """The key pair of the randomness beacon; None where selection uses none."""
        if self.selection.beacon_latency_s is None:
            return None
        return SigningKey.from_seed(self.randomness.secret("round beacon", 0, "signing key"))

    def round_beacon(self, state: npt.NDArray[np.uint8] | None) -> RoundBeacon | None:
        """Return the beacon as the last round left it; None if the run has none."""
        return None if self.beacon_key is None else RoundBeacon(self.beacon_key, self.experiment_id, state)

    def completed(self, board: Directory, workload: Workload) -> Directory:
        """Close registration: add the public seed, the beacon's public key and the announced numbers of samples."""
        # Only now: a party that knew the seed earlier could register clients at places that suit it.
        board = replace(board, public_seed=self.randomness.identity_secret("pki", 0, "public seed"))
        if self.beacon_key is not None:
            board = replace(board, beacon=self.beacon_key.public)
        if self.aggregation_parameters.needs_sample_counts:
            board = replace(board, samples=np.asarray(workload.sample_counts, np.int64))
        return board

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages of a round, in order; in asynchronous rounds nobody is asked to stand for selection."""
        selecting = self.selection.stages if self.experiment.asynchronous is None else ()
        return (*selecting, "train", *self.aggregation.stages)

    @property
    def needs_registration(self) -> bool:
        """Whether clients must be registered with the PKI before the rounds."""
        return self.selection.needs_registration or self.aggregation.needs_registration

    @property
    def derives_identities(self) -> bool:
        """Whether clients have the keys that follow from the seed, without having registered; see `derived_keys`."""
        # Measured registration must really happen, and secrets of the operating system cannot be derived.
        derivable = self.experiment.time.work_is_modelled and not self.randomness.secrets_from_system
        return self.needs_registration and derivable

    def derived_board(self, workload: Workload) -> Directory:
        """Return the bulletin board with derived keys, if the run derives them."""
        return self.completed(Directory.derived(self.experiment.population, self.randomness), workload)

    @property
    def roles(self) -> list[RoleSpec]:
        """The client sides of all protocols of the run."""
        specs = [*self.selection.roles, RoleSpec(Trainer, None), *self.aggregation.roles]
        # The last role for a message wins (`Host`): canaries replace `Trainer`, and attacks replace any role.
        specs += canary_roles(self.experiment, self.dishonest, self.randomness)
        if self.experiment.asynchronous is not None:
            specs.append(RoleSpec(UpdateKeeper, Staleness(self.experiment.asynchronous.staleness_exponent)))
        return specs if self.adversary is None else self.adversary.roles(specs)

    @cached_property
    def results(self) -> Memo | None:
        """Of pure functions that several parties of this process need; None: where time is measured."""
        # Where time is measured, each party must do its own work.
        return Memo() if self.experiment.time.work_is_modelled else None

    @property
    def symbolic_masks(self) -> bool:
        """Whether masks stay seeds until somebody looks."""
        return uses_symbolic_masks(self.aggregation_parameters, self.experiment.time.work_is_modelled)

    @property
    def dishonest(self) -> frozenset[int]:
        """The clients that work for a malicious server."""
        return frozenset() if self.adversary is None else self.adversary.dishonest

    def noise_plan(self, dimension: int) -> NoisePlan | None:
        """Return the noise that the aggregation adds; None if it adds none.

        Args:
            dimension: number of model parameters.

        Raises:
            ExperimentError: participants add noise, but the accountant returns None. The run would have no privacy
                ledger, unnoticed.
        """
        sizes = self.minimum_participants, self.maximum_participants
        noise = self.aggregation.noise_plan(*sizes, dimension, self.selection.client_rate)
        # Without an accountant the run would have no ledger, and nobody would notice.
        if noise is None and noise_of(self.aggregation_parameters) is not None:
            raise ExperimentError(
                f"aggregation.protocol: {self.experiment.aggregation.protocol}: participants add noise "
                "(aggregation.noise), but its accountant returns None; return the privacy cost"
            )
        return noise

    def reports_training(self, dimension: int) -> bool:
        """Return whether clients report their mean loss: not next to noise, unless the experiment allows it.

        Args:
            dimension: number of model parameters.

        Raises:
            ExperimentError: a selection, or a user-defined class that learns from reports, needs the losses.
        """
        section = self.experiment.privacy or PrivacySection()
        if section.report_losses or self.noise_plan(dimension) is None:
            return True
        if needs := needing_losses(self.experiment, self.selection):
            raise ExperimentError(f"privacy.report_losses: false, but selection.{needs} {NEEDS_LOSSES}")
        return False

    def client_algorithm(self, workload: Workload) -> ClientAlgorithm:
        """Return the clients' training algorithm, with the state that they keep from round to round.

        Args:
            workload: the training task.

        Raises:
            ExperimentError: the workload does not support the algorithm.
        """
        section = self.experiment.workload
        if section.drift_correction is None and section.local_layers is None:
            return STATELESS
        equal = self.aggregation_parameters.weights == "equal"
        total = self.experiment.population if equal else int(workload.sample_counts.sum())
        info = TaskInfo(workload.dimension, section.learning_rate_in, float(total))
        if section.local_layers is not None:
            if not isinstance(workload, PersonalWorkload):
                raise ExperimentError(
                    f"workload.local_layers: {section.dataset} does not say which layers it has; leave the key out, or "
                    "see PersonalWorkload in testbed/workload/contract.py"
                )
            local = workload.local_numbers(section.local_layers.first, section.local_layers.last)
            return LocalLayers(info, workload.initial_model()[local], local)
        assert section.drift_correction is not None
        if not isinstance(workload, DriftCorrectedWorkload):
            raise ExperimentError(
                f"workload.drift_correction: {section.dataset} trains without it; leave the key out, or see "
                "DriftCorrectedWorkload in testbed/workload/contract.py"
            )
        return drift_correction(section.drift_correction, info, workload)

    @property
    def participation_pattern(self) -> ParticipationPattern | None:
        """How far apart and how many the rounds of a client may be, which clients insist on; None: nothing is sure."""
        pattern: ParticipationPattern | None = self.selection.parameters.participation_pattern(self.experiment.rounds)
        return pattern

    @property
    def clients_remember(self) -> bool:
        """Whether clients keep something from round to round, in the run's directory."""
        learning = self.experiment.workload
        states = learning.drift_correction, learning.local_layers, self.participation_pattern
        return any(states) or self.selection.clients_pin_batches

    def environment(self, workload: Workload, directory: Path | None = None) -> Environment:
        """Return the settings shared by the clients of one host; the PKI's directory is set after registration.

        Args:
            workload: the training task.
            directory: the run's directory, for the clients' states if they keep any; None: a temporary one per host.
        """
        algorithm, pattern = self.client_algorithm(workload), self.participation_pattern
        pins = self.selection.clients_pin_batches
        log = ParticipationLog(directory) if pins or pattern is not None else None
        client_states = ClientStates(directory) if algorithm.keeps_state or directory is not None else None
        # Once per process, before clients are timed.
        self.aggregation.prepare(self.maximum_participants, workload.dimension)
        return Environment(
            population=self.experiment.population,
            randomness=self.randomness,
            compute=self.compute,
            directory=Directory.empty(0),
            workload=workload,
            experiment_id=self.experiment_id,
            participants_are_agreed=self.selection.participants_agree,
            clients_decide=self.selection.clients_decide,
            minimum_participants=self.minimum_participants,
            maximum_participants=self.maximum_participants,
            rounds=self.experiment.rounds,
            batches=self.selection.batches if self.selection.clients_know_batches else None,
            client_rate=self.selection.client_rate,
            reports_training=self.reports_training(workload.dimension),
            symbolic_masks=self.symbolic_masks,
            derives_identities=self.derives_identities,
            results=self.results,
            client_algorithm=algorithm,
            client_states=client_states,
            participation=None if pattern is None or log is None else OwnParticipation(pattern, log),
            pinned_batches=PinnedBatches(log) if pins and log is not None else None,
        )

    @cached_property
    def class_members(self) -> ClassMembers | None:
        """The members of each class of clients; None if the experiment has no classes."""
        if not self.experiment.classes:
            return None
        generator = self.randomness.generator("classes", 0, "members")
        return draw_members(self.experiment.classes, self.experiment.population, generator)

    def links(self) -> ClientLinks:
        """Return the clients' and the server's links; raises `TraceError` for unusable files."""
        generator = self.randomness.generator("links", 0, "draw")
        groups = []
        for name, kind in self.experiment.classes.items():
            if kind.link_settings and self.class_members is not None:
                # A generator per class: another class in the experiment leaves these draws as they are.
                draws = self.randomness.generator("links", 0, f"draw of class {name}")
                groups.append(LinkGroup(np.flatnonzero(self.class_members.are_in(name)), kind.link_settings, draws))
        return client_links(self.experiment.links, self.experiment.population, generator, groups)

    def speed_factors(self) -> npt.NDArray[np.float64]:
        """`(n,)` how many times longer than the reference machine each client computes; raises as `links` does."""
        n = self.experiment.population
        factors = speed_factors(self.experiment.devices, n, self.randomness.generator("devices", 0, "speed"))
        for name, kind in self.experiment.classes.items():
            if kind.devices is not None and self.class_members is not None:
                # A generator per class, as for links.
                generator = self.randomness.generator("devices", 0, f"speed of class {name}")
                of_class = speed_factors(kind.devices, n, generator, f"classes.{name}.device")
                factors = np.where(self.class_members.are_in(name), of_class, factors)
        return factors

    def availability(self, workload: Workload) -> Availability:
        """Return the availability of the clients.

        Args:
            workload: the training task.

        Raises:
            TraceError: a file cannot be used.
            ExperimentError: the availability depends on labels, and the workload has none.
        """

        def label_counts() -> npt.NDArray[np.int64]:
            if isinstance(workload, PartlySharedWorkload):  # shared labels do not distinguish clients
                return workload.own_label_counts()
            if isinstance(workload, LabelledWorkload):
                return workload.label_counts()
            raise ExperimentError("availability.model: this workload has no label_counts(), which the model needs")

        after_selection = ("train", *self.aggregation.stages)
        experiment = self.experiment
        return availability_model(
            experiment.availability, experiment.population, after_selection, self.randomness, label_counts
        )

    def read_files(self, workload: Workload) -> tuple[str, ...]:
        """Read every file that the experiment names, to raise errors before anything runs.

        Args:
            workload: the training task.

        Returns:
            Lines on oddities in the files, and how they are handled.
        """
        notes = self.links().notes
        self.speed_factors()
        self.availability(workload)
        section = self.experiment.availability
        if isinstance(section, Scheduled):
            check_schedule(Schedule.read(section.path).stages, str(section.path), self.stages)
        self.selection.check_files()
        return notes

    @property
    def timing(self) -> Timing:
        """Return the deadlines and quorums."""
        time_ = self.experiment.time
        return Timing(time_.deadline_s, time_.stage_deadlines, time_.disconnects == "visible", time_.stage_quorums)

    def check_sums(self, workload: Workload) -> None:
        """Raise `ExperimentError` unless the aggregation can sum these clients' updates.

        The adversary must be able to act on the sums, too.
        """
        self.aggregation_parameters.check_workload(workload)
        check_training(self.experiment, self.roles, self.client_algorithm(workload), workload)
        check_losses(self.experiment, self.selection, workload)
        heaviest = int(workload.sample_counts.max(initial=1))
        self.aggregation_parameters.check_weights(self.maximum_participants, heaviest)
        self.aggregation_parameters.check_dimension(self.maximum_participants, workload.dimension)
        if self.adversary is not None:
            self.adversary.check_workload(workload)
        # For their errors alone.
        self.noise_plan(workload.dimension)
        self.reports_training(workload.dimension)

    def _check_broadcast(self) -> None:
        """Raise `ExperimentError` for a server that sends different models to clients with a state.

        The check stands here so that a survey of misbehaviours leaves the combination out.
        """
        if type(self.broadcast) is Broadcast:
            return
        section, why = self.experiment.workload, "the server sends other models than those that clients keep state by"
        for key, value in {"drift_correction": section.drift_correction, "local_layers": section.local_layers}.items():
            if value is not None:
                raise ExperimentError(str(excludes(f"workload.{key}", "adversary.server", why)))
