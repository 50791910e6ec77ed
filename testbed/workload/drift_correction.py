"""Client algorithms that correct the drift of local training by what each client has kept from the rounds before.

SCAFFOLD: Karimireddy, Kale, Mohri, Reddi, Stich and Suresh, SCAFFOLD: Stochastic Controlled Averaging for Federated
Learning, ICML 2020, arXiv 1910.06378, Algorithm 1 with option II. FedDyn: Acar, Zhao, Matas Navarro, Mattina, Whatmough
and Saligrama, Federated Learning Based on Dynamic Regularization, ICLR 2021, arXiv 2111.04263, Algorithm 1.

Both add a term to each local step's gradient that depends on what the client keeps, (p,) float32, zeros at first: its
control variate c_i (SCAFFOLD), or its last gradient (FedDyn). It counts once its update was in a sum; whoever drops out
before that has what it had. p are the parameters that have gradients, which are the first ones of a model's vector:
running statistics of batch normalisation follow them, are averaged, and have no term.

The papers count all clients equally (``aggregation.weights: equal``). By samples, with p_i client i's share of all
samples, c = sum of p_i c_i and h = sum of p_i g_i hold as they do there with p_i = 1/N.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

from testbed.arrays import Floats, Ids
from testbed.errors import RunError
from testbed.workload.contract import DriftCorrectedWorkload, LocalUpdate

Memory = dict[str, npt.NDArray[Any]]
"""Arrays by name that a run keeps from round to round, in its checkpoint."""

LAST_ROUND = "client_states/last_round"
"""(n,) int64 in that memory: of each client the last round whose sum had its update; 0: none had."""


class DriftCorrectionSection(BaseModel):
    """Which algorithm; the symbols are those of the papers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["scaffold", "feddyn"] = Field(
        description="scaffold (Karimireddy et al. 2020, arXiv 1910.06378), which sends a control variate beside the "
        "model both ways; or feddyn (Acar et al. 2021, arXiv 2111.04263), which sends what FedAvg does"
    )
    alpha: float | None = Field(
        None,
        gt=0,
        le=1e6,
        allow_inf_nan=False,
        description="Strength of feddyn's dynamic regularisation (alpha), e.g. 0.01; of feddyn only, which needs it",
    )

    @property
    def pull(self) -> float:
        """How strongly each local step is drawn to the model that was given: feddyn's alpha, else 0."""
        return self.alpha or 0.0

    @model_validator(mode="after")
    def _alpha_is_feddyns(self) -> Self:
        if self.name == "feddyn" and self.alpha is None:
            raise ValueError("alpha: is required for feddyn, e.g. 0.01")
        if self.name != "feddyn" and self.alpha is not None:
            raise ValueError(f"alpha: is read for feddyn only; {self.name} has no use for it")
        return self

    def check(self, workload: Any) -> None:
        """Raise `ValueError` (one line: key, what to do) where the rest of the ``workload`` section does not fit."""
        name = self.name
        if workload.optimizer != "sgd" or workload.momentum:
            given = f"momentum: {workload.momentum:g}" if workload.optimizer == "sgd" else workload.optimizer
            raise ValueError(
                f"drift_correction: {name} corrects plain gradient steps, not {given}; set optimizer: sgd, momentum: 0"
            )
        if workload.proximal:
            raise ValueError(f"proximal: not with drift_correction: {name}; leave out one of the two")
        if workload.clients_at_once > 1:
            raise ValueError(f"clients_at_once: drift_correction: {name} trains one client at a time; leave it out")
        schedule = workload.learning_rate_schedule
        if name == "scaffold" and schedule is not None and schedule.last == 0:
            raise ValueError("learning_rate_schedule.last: 0; scaffold divides by the learning rate, set it above 0")

    def check_experiment(self, *, noise: bool, steps: bool) -> None:
        """Raise `ValueError` as `check`, where participants add noise, or the server has an optimizer of its own."""
        if noise:
            raise ValueError(
                f"drift_correction: {self.name} sums what no noise was planned for; leave out aggregation.noise"
            )
        if steps and self.name == "feddyn":
            raise ValueError("drift_correction: feddyn has a server's step of its own; leave out server_optimizer")


DriftCorrectionKey = Annotated[
    DriftCorrectionSection | None,
    Field(
        exclude_if=lambda section: section is None,
        description="Clients that keep what corrects their drift, e.g. {name: scaffold}; none: FedAvg",
    ),
]


@dataclass(frozen=True)
class Learning:
    """What is learned, as far as a drift correction needs to know.

    Attributes:
        dimension: d.
        corrected: p, how many of the first parameters have gradients.
        learning_rate_in: eta by the round.
        total_weight: of all clients of the population.
    """

    dimension: int
    corrected: int
    learning_rate_in: Callable[[int], float]
    total_weight: float

    def share(self, weight: float) -> float:
        """|S|/N of clients whose weights add up to this; a client that claims too much makes it no more than 1."""
        return min(1.0, weight / self.total_weight)


class DriftCorrection(ABC):
    """One algorithm: what clients are sent and make of it, and how the server steps.

    Args:
        section: the experiment's.
        learning: what is learned.
    """

    arrays: ClassVar[frozenset[str]]
    """What the server keeps in a run's memory, (p,) float64; zeros before the first sum."""

    def __init__(self, section: DriftCorrectionSection, learning: Learning) -> None:
        self.section = section
        self.learning = learning

    @property
    def length(self) -> int:
        """Of what clients are sent, and of what they send."""
        return self.learning.dimension

    def sent(self, model: npt.NDArray[np.float32], memory: Memory) -> npt.NDArray[np.float32]:
        """`(length,)` what all clients are sent."""
        return model

    @abstractmethod
    def learned(
        self,
        workload: DriftCorrectedWorkload,
        client: int,
        sent: npt.NDArray[np.float32],
        own: npt.NDArray[np.float32],
        round_number: int,
    ) -> tuple[LocalUpdate, npt.NDArray[np.float32]]:
        """A client's update, whose ``delta`` is `(length,)`, and `(p,)` what it keeps if that is in a sum.

        Args:
            workload: trains it.
            client: its number.
            sent: what it was sent.
            own: `(p,)` what it has kept.
            round_number: the round.
        """

    @abstractmethod
    def step(self, memory: Memory, mean: Floats, weight: float, round_number: int) -> Floats:
        """`(d,)` the server's step, from the `(length,)` mean of updates of this weight; its memory moves on."""

    def moved_on(self, memory: Memory, survivors: Ids, round_number: int) -> None:
        """From now on what these clients have made in this round is what they have."""
        memory[LAST_ROUND] = memory[LAST_ROUND].copy()
        memory[LAST_ROUND][survivors] = round_number

    def beginning(self, population: int) -> Memory:
        """The memory of a run that has not had a round."""
        zeros = {name: np.zeros(self.learning.corrected) for name in sorted(self.arrays)}
        return {LAST_ROUND: np.zeros(population, np.int64), **zeros}


class Scaffold(DriftCorrection):
    """SCAFFOLD: y <- y - eta (g_i(y) - c_i + c), K times; then c_i' = c_i - c + (x - y) / (K eta) (option II).

    Model and control variate are sent as one vector, (x, c), and (Delta y_i, eta Delta c_i) comes back: times eta the
    second is of an update's size, and fits what quantisation makes of one. The server's eta_g is that of
    ``aggregation.server_optimizer``, unset 1.
    """

    arrays = frozenset({"scaffold/c"})

    @property
    def length(self) -> int:
        """d + p."""
        return self.learning.dimension + self.learning.corrected

    def sent(self, model: npt.NDArray[np.float32], memory: Memory) -> npt.NDArray[np.float32]:
        """(x, c)."""
        return np.concatenate([model, memory["scaffold/c"].astype(np.float32)])

    def learned(
        self,
        workload: DriftCorrectedWorkload,
        client: int,
        sent: npt.NDArray[np.float32],
        own: npt.NDArray[np.float32],
        round_number: int,
    ) -> tuple[LocalUpdate, npt.NDArray[np.float32]]:
        """See `DriftCorrection.learned`; a client without samples takes no step and changes nothing."""
        model, common = np.split(sent, [self.learning.dimension])
        rate = self.learning.learning_rate_in(round_number)
        update, steps = workload.train_corrected(client, model, round_number, common - own)
        change = np.zeros(len(own), np.float32)
        if steps:
            change = (-common.astype(np.float64) - update.delta[: len(own)] / (steps * rate)).astype(np.float32)
        both = np.concatenate([update.delta, np.float32(rate) * change])
        return replace(update, delta=both), own + change

    def step(self, memory: Memory, mean: Floats, weight: float, round_number: int) -> Floats:
        """x by the mean Delta y; c += |S|/N mean Delta c."""
        step, change = np.split(mean, [self.learning.dimension])
        rate = float(np.float32(self.learning.learning_rate_in(round_number)))
        memory["scaffold/c"] = memory["scaffold/c"] + self.learning.share(weight) / rate * change
        return step


class FedDyn(DriftCorrection):
    """FedDyn: a client minimises L_i(y) - <g_i, y> + alpha/2 |y - x|^2, by steps; then g_i' = g_i - alpha Delta_i.

    The server has h' = h - alpha |S|/N mean Delta and x' = x + mean Delta - h'/alpha.
    """

    arrays = frozenset({"feddyn/h"})

    def learned(
        self,
        workload: DriftCorrectedWorkload,
        client: int,
        sent: npt.NDArray[np.float32],
        own: npt.NDArray[np.float32],
        round_number: int,
    ) -> tuple[LocalUpdate, npt.NDArray[np.float32]]:
        """See `DriftCorrection.learned`."""
        update, _ = workload.train_corrected(client, sent, round_number, -own)
        return update, own - np.float32(self.section.pull) * update.delta[: len(own)]

    def step(self, memory: Memory, mean: Floats, weight: float, round_number: int) -> Floats:
        """See the class."""
        alpha, moved = self.section.pull, mean[: self.learning.corrected]
        memory["feddyn/h"] = memory["feddyn/h"] - alpha * self.learning.share(weight) * moved
        step = mean.copy()
        step[: self.learning.corrected] -= memory["feddyn/h"] / alpha
        return step


ALGORITHMS: dict[str, type[DriftCorrection]] = {"scaffold": Scaffold, "feddyn": FedDyn}
"""By the name in an experiment, with which the names of their arrays begin."""


def check_memory(memory: Mapping[str, Any], algorithm: DriftCorrection | None, population: int, where: str) -> None:
    """Raise `RunError` where a checkpoint is of another algorithm, or of another model.

    Args:
        memory: the checkpoint's.
        algorithm: the experiment's; None: it has none.
        population: number of clients.
        where: which checkpoint.
    """
    found = sorted({name.partition("/")[0] for name in memory}.intersection(ALGORITHMS))
    wanted = [] if algorithm is None else [algorithm.section.name]
    advice = "resume with the experiment that began the run"
    if found != wanted:
        was, now = (", ".join(names) or "no drift_correction" for names in (found, wanted))
        raise RunError(f"{where} is of {was}, the experiment of {now}; {advice}")
    if algorithm is not None and {
        name: memory[name].shape if name in memory else None for name in algorithm.beginning(population)
    } != {name: array.shape for name, array in algorithm.beginning(population).items()}:
        raise RunError(f"{where} has no states of {population} clients of this model; {advice}")
