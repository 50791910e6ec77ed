"""DP-SGD with random participation.

Source: Hasircioglu and Gunduz, Privacy Amplification via Random Participation in Federated Learning, arXiv 2205.01556,
Algorithm 1; section 5.5 for an untrusted server.

In a round every available client takes part with probability p. With selection `bernoulli` the server draws the
clients; with ``coins: clients`` each client decides for itself, as in the paper. A participant uses each of its samples
with probability q and sends the sum of their gradients, each clipped to norm C. The server adds noise N(0, sigma^2 I),
scales by 1 / (p q D) and steps against the gradient. D is the number of samples of all available clients (the paper's
N_t d, where all clients have d samples). A round without participants is completed, too: its noise moves the model.

If the server is untrusted, each client adds noise of its own. To hide which clients take part, every available client
gets the model and answers. With ``answers: participants`` only participants answer (second variant of section 5.5): the
server sees which clients take part, and Theorem 5.2 (WCS) applies.

The number of samples of a client is public. The protected information is the samples themselves
(`subsampled_gaussian`).
"""

from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from testbed.aggregation.contract import (
    Aggregate,
    AggregationParameters,
    AggregationProtocol,
    AggregationRound,
    clients_with_shape,
)
from testbed.emulation.compute.cost import meter
from testbed.errors import ExperimentError, Refusal, RoundAborted, RoundSkipped, RunError
from testbed.memory import ArrayName
from testbed.messages import Message, RoundNumber, Vector
from testbed.parties.client import Client, Role, RoleSpec, handles
from testbed.privacy.gaussian import SubsampledGaussianAccountant, coins, with_noise
from testbed.privacy.noise_plan import Guarantees, NoisePlan
from testbed.training import Train, Trainer, TrainingReport, trained_update
from testbed.workload.contract import GradientWorkload, LocalUpdate, Workload

_NAME = "dp-sgd-random-participation"
_VELOCITY = ArrayName("dp_sgd_velocity")
_UNREAD = (
    "epochs",
    "batch_size",
    "optimizer",
    "learning_rate",
    "momentum",
    "weight_decay",
    "proximal",
    "learning_rate_decay",
    "learning_rate_decay_every",
    "learning_rate_milestones",
    "learning_rate_schedule",
)


class RandomParticipationParameters(AggregationParameters):
    """Sums of clipped gradients with noise that hides each sample (``sigma: 0``: no noise, no privacy)."""

    stages: ClassVar[tuple[str, ...]] = ("dp-sgd/gradient",)
    protects_samples: ClassVar[bool] = True
    reports_losses: ClassVar[bool] = False

    protocol: Literal["dp-sgd-random-participation"] = "dp-sgd-random-participation"
    sample_rate: float = Field(
        gt=0, le=1, allow_inf_nan=False, description="Probability with which a participant uses each sample (q)"
    )
    clip: Annotated[float, Field(gt=0, allow_inf_nan=False)] | Literal["none"] = Field(
        1.0,
        description="Largest L2 norm of a sample's gradient (C); longer gradients are scaled down to it. none: no "
        "clipping, with sigma: 0 only",
    )
    sigma: float = Field(
        ge=0,
        allow_inf_nan=False,
        description="Standard deviation of the noise in each element, in units of the gradient (not of the clip). 0: "
        "no noise and no privacy, as a baseline",
    )
    server: Literal["trusted", "untrusted"] = Field(
        "trusted",
        description="trusted: only participants answer, and the server adds the noise; untrusted: every available "
        "client answers with noise of its own",
    )
    answers: Literal["everybody", "participants"] = Field(
        "everybody",
        description="Clients that answer an untrusted server. everybody: every available client, so that the server "
        "does not learn the participants; participants: only these, which saves traffic and reveals them",
    )
    learning_rate: float = Field(0.05, gt=0, le=1000, allow_inf_nan=False, description="Step size of the server (eta)")
    momentum: float = Field(0.0, ge=0, lt=1, description="Momentum of the server's steps")

    @property
    def hides_participation(self) -> bool:
        """Whether every available client answers, so that the server does not learn the participants."""
        return self.server == "untrusted" and self.answers == "everybody"

    def clip_for(self, sample_count: int) -> float | None:
        """Return the norm to which a client with this many samples clips gradients; None: no clipping.

        It is a little less than C: the rounding of sums to float32 grows with the number of samples, and one sample
        must not change the sum by more than C.
        """
        return None if self.clip == "none" else self.clip / (1 + sample_count * _ROUNDING)

    def check(self, participants: int) -> None:
        """Check that noise comes with a clip, and that its deviation is representable on the grid of the sums."""
        if self.sigma and self.clip == "none":
            raise ValueError(
                "clip: none needs sigma: 0, because noise cannot hide gradients of unbounded norm; set clip"
            )
        if 0 < self.sigma < _LEAST_SIGMA:
            raise ValueError(f"sigma: {self.sigma:g}; must be at least {_LEAST_SIGMA:g}, or 0 for no privacy")
        if self.sigma > _LARGEST_SIGMA:
            raise ValueError(f"sigma: {self.sigma:g}; must be at most {_LARGEST_SIGMA:g}, as larger noise is not exact")
        if self.server == "trusted" and self.answers != "everybody":
            raise ValueError("answers: participants needs server: untrusted; a trusted server asks only participants")
        if self.server_optimizer is not None:
            raise ValueError(
                f"server_optimizer: {_NAME} has its own step (aggregation.learning_rate, aggregation.momentum); leave "
                "server_optimizer out"
            )
        if self.weights != "samples":
            raise ValueError(f"weights: {self.weights}; in {_NAME} every sample counts the same; leave it out")

    def check_experiment(self, selection: Any, workload: Any) -> None:
        """Check that clients are drawn independently, and that no key of local training is set without effect."""
        if selection.protocol != "bernoulli":
            raise ValueError(
                f"protocol: {_NAME} needs clients that are drawn independently; set selection.protocol to bernoulli, "
                f"with client_rate (now {selection.protocol})"
            )
        if selection.coins == "clients" and self.hides_participation:
            raise ValueError(
                "answers: everybody hides the participants from an untrusted server, but with selection.coins: clients "
                "they announce themselves to it; leave selection.coins out (clients draw for themselves here in any "
                "case), or set answers: participants"
            )
        if not workload.is_built_in:
            return
        for key in _UNREAD:
            if not workload.has_default(key):
                instead = f", and set aggregation.{key}" if key in ("learning_rate", "momentum") else ""
                raise ValueError(
                    f"protocol: {_NAME} does not read workload.{key}, as clients do not train; leave it out{instead}"
                )

    def check_workload(self, workload: Workload) -> None:
        """Raise `ExperimentError` for a workload that has no gradients of single samples."""
        if not isinstance(workload, GradientWorkload):
            raise ExperimentError(
                f"workload.dataset: this workload has no gradient_sum, which {_NAME} needs; see GradientWorkload "
                "in testbed/workload/contract.py"
            )
        workload.check_gradient_sum()


_LEAST_SIGMA = 2.0**-16
_LARGEST_SIGMA = 2.0**17  # the longest noise, 8.57 of them, is below the 2**21 up to which `with_noise` is exact
_ROUNDING = 2.0**-22  # of float32: half of it for the difference of two sums that are sent, half for making them


class Gradient(Message, frozen=True):
    """Sum of a client's clipped gradients, float32; with the client's noise if the server is untrusted."""

    gradient: Vector


class SendGradient(Message, frozen=True):
    """Question for the sum of gradients."""

    stage: ClassVar[str] = "dp-sgd/gradient"
    Answer: ClassVar[type[Message] | None] = Gradient

    round: RoundNumber


class GradientTrainer(Trainer):
    """Client side of the broadcast: computes gradients at the received model in place of local training."""

    parameters: RandomParticipationParameters

    def learn(self, workload: Workload, message: Train) -> LocalUpdate:
        """Return the sum of gradients over the drawn samples; zero if the client decides not to take part."""
        client = self.client.number
        sample_count = int(workload.sample_counts[client])
        # Zeros, to which the sender adds noise: the server cannot tell this answer from that of a participant.
        if not self._takes_part(message.round):
            return LocalUpdate(np.zeros(workload.dimension, np.float32), sample_count, 0.0, 0)
        samples = np.flatnonzero(
            coins(self._secret(message.round, "samples"), sample_count, self.parameters.sample_rate)
        )
        assert isinstance(workload, GradientWorkload)  # checked before the run
        clip = self.parameters.clip_for(sample_count)
        return workload.gradient_sum(client, message.model.values, message.round, samples, clip)

    def charged_examples(self, update: LocalUpdate) -> int:
        """Return the charged samples: all if the server is untrusted, as time must not reveal the used ones."""
        return update.examples_processed if self.parameters.server == "trusted" else update.samples

    def handle_non_finite(self, delta: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return zeros if noise hides them: a refusal would be visible."""
        return np.zeros_like(delta) if self.parameters.sigma else super().handle_non_finite(delta)

    def training_report(self, update: LocalUpdate) -> TrainingReport:
        """Return a report without loss: the loss and the number of used samples would be released without noise."""
        return TrainingReport(update.samples, float("nan"))

    def _takes_part(self, round_number: int) -> bool:
        """Return whether the client takes part; it draws for itself only if all available clients answer."""
        if not self.parameters.hides_participation:
            return True
        rate = self.environment.client_rate
        if rate is None:
            raise Refusal("dp-sgd.no-client-rate", "the selection of this run does not draw clients independently")
        return bool(coins(self._secret(round_number, "participation"), 1, rate)[0])

    def _secret(self, round_number: int, purpose: str) -> bytes:
        return _secret(self.client, round_number, purpose)


class GradientSender(Role):
    """Client side of the aggregation."""

    parameters: RandomParticipationParameters

    def __init__(self, client: Client, parameters: Any) -> None:
        super().__init__(client, parameters)
        self._answered = False

    @handles(SendGradient)
    def on_send_gradient(self, message: SendGradient) -> Gradient:
        """Send the sum once: a second answer with fresh noise would let the server average the noise away."""
        total = trained_update(self, message.round).delta
        if self._answered:
            raise Refusal("dp-sgd.repeated-answer", f"the gradient of round {message.round} was sent before")
        self._answered = True
        if self.parameters.server == "untrusted" and self.parameters.sigma:
            meter("gaussian.element", len(total))
            seed = _secret(self.client, message.round, "noise")
            total = with_noise(total, self.parameters.sigma, seed).astype(np.float32)
        return Gradient(Vector(total, 0))


class RandomParticipation(AggregationProtocol):
    """Server side. A round without participants is completed, not skipped."""

    parameters: RandomParticipationParameters
    stages = RandomParticipationParameters.stages
    allows_empty_selection = True
    shares_noise = False  # the server, or every client by itself, adds all that hides a sample

    @property
    def broadcasts_to_all(self) -> bool:
        """Whether every available client gets the model and answers, which hides the participants."""
        return self.parameters.hides_participation

    def guarantees(self, participants: int) -> Guarantees:
        """Return no guarantees for sums; the noise is complete however clients drop out."""
        return Guarantees.none(participants, min_noise_share=1.0)

    def accountant(self, participants: int, dimension: int, client_rate: float = 1.0) -> SubsampledGaussianAccountant:
        """Return the accountant of a client's rounds.

        If only participants answer, a client's rounds are those in which it took part. If all available clients answer,
        they are all rounds in which it answered, and `client_rate` is the probability that it took part in each of
        them; without the rate each round counts as if it had taken part.
        """
        parameters = self.parameters
        rate = client_rate if parameters.hides_participation else 1.0
        noise_multiplier = parameters.sigma / parameters.clip if parameters.clip != "none" else 0.0
        return SubsampledGaussianAccountant(noise_multiplier, parameters.sample_rate, rate)

    def noise_plan(self, smallest: int, largest: int, dimension: int, client_rate: float | None) -> NoisePlan | None:
        """Return the plan; with an untrusted server each client adds the noise of its answer."""
        plan = super().noise_plan(smallest, largest, dimension, client_rate)
        if plan is None or self.parameters.server == "trusted":
            return plan
        return replace(plan, source="clients")

    @property
    def roles(self) -> list[RoleSpec]:
        """Both roles; clients play `GradientTrainer` in place of `Trainer`."""
        return [RoleSpec(GradientTrainer, self.parameters), RoleSpec(GradientSender, self.parameters)]

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        """Return the server's step as the mean, and the expected batch size as the weight."""
        available, rate = round_.available_samples, round_.client_rate
        if round_.dimension is None or available is None or rate is None or round_.randomness is None:
            raise RoundAborted("nothing-known", "model size, available samples, client rate or randomness is not known")
        if not available:
            raise RoundSkipped("nobody-available", "no available client has samples")
        total, survivors = await self._total(round_, round_.dimension)
        if self.parameters.server == "trusted" and self.parameters.sigma:
            meter("gaussian.element", len(total))
            seed = round_.randomness.secret("server", round_.number, f"{_NAME}/noise")
            total = with_noise(total, self.parameters.sigma, seed)
        # The expected batch size: the drawn size depends on the secret coins.
        batch = rate * self.parameters.sample_rate * available
        velocity = total / batch
        if self.parameters.momentum:
            velocity += self.parameters.momentum * round_.memory.get(_VELOCITY, np.zeros_like(total))
            round_.memory[_VELOCITY] = velocity
        return Aggregate(-self.parameters.learning_rate * velocity, batch, survivors)

    async def _total(self, round_: AggregationRound, dimension: int) -> tuple[Any, Any]:
        """Return the `(d,)` float64 sum of the gradients that arrived, and their clients; other shapes are left out."""
        if not len(round_.trained):
            return np.zeros(dimension), round_.trained
        replies = await round_.network.ask(round_.trained, SendGradient(round_.number))
        gradients = {client: answer.gradient for client, answer in replies.valid().items()}
        survivors = clients_with_shape(gradients, 0, dimension)
        if not len(survivors):  # the noise of an empty round moves the model, too
            return np.zeros(dimension), survivors
        try:
            return await replies.total(survivors, np.ones(len(survivors), np.int64)), survivors
        except RunError:
            raise RoundAborted("gradient-too-large", "a gradient is not finite or too large to sum") from None


def _secret(client: Client, round_number: int, purpose: str) -> bytes:
    """Return 32 secret bytes of this client for one purpose in a round."""
    return client.environment.randomness.secret(client.number, round_number, f"{_NAME}/{purpose}")
