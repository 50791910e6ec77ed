"""Client algorithms that correct the drift of local training with the client's state: SCAFFOLD and FedDyn.

SCAFFOLD: Karimireddy, Kale, Mohri, Reddi, Stich and Suresh, SCAFFOLD: Stochastic Controlled Averaging for Federated
Learning, ICML 2020, arXiv 1910.06378, Algorithm 1 with option II. FedDyn: Acar, Zhao, Matas Navarro, Mattina, Whatmough
and Saligrama, Federated Learning Based on Dynamic Regularization, ICLR 2021, arXiv 2111.04263, Algorithm 1.

Both add a term to each local gradient that depends on the client's state, (p,) float32, initially zeros: the control
variate c_i (SCAFFOLD) or the last gradient (FedDyn). p is the number of parameters with gradients, which come first in
the model's vector. Running statistics of batch normalisation follow; they are averaged and have no term.

The papers weight all clients equally (``aggregation.weights: equal``). With weights by samples, where p_i is client i's
share of all samples, c = sum of p_i c_i and h = sum of p_i g_i hold as in the papers with p_i = 1/N.
"""

from dataclasses import replace
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

from testbed.arrays import Floats
from testbed.memory import ArrayName, Memory
from testbed.workload.client_algorithm import ClientAlgorithm, LocalTask, TaskInfo
from testbed.workload.contract import DriftCorrectedWorkload, LocalUpdate

SCAFFOLD_CORRECTION = ArrayName("scaffold/c")
FEDDYN_CORRECTION = ArrayName("feddyn/h")
"""(length,) float64: the server's corrections, c of SCAFFOLD and h of FedDyn."""


class DriftCorrectionSection(BaseModel):
    """Settings of a drift correction; the symbols are those of the papers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["scaffold", "feddyn"] = Field(
        description="scaffold (Karimireddy et al. 2020, arXiv 1910.06378), which sends a control variate with the "
        "model in both directions; or feddyn (Acar et al. 2021, arXiv 2111.04263), which sends the same as FedAvg"
    )
    alpha: float | None = Field(
        None,
        gt=0,
        le=1e6,
        allow_inf_nan=False,
        description="Strength of FedDyn's dynamic regularisation (alpha), e.g. 0.01. Required for feddyn, and for "
        "feddyn only",
    )

    @property
    def pull(self) -> float:
        """Strength of the pull towards the global model in each local step: feddyn's alpha, else 0."""
        return self.alpha or 0.0

    @model_validator(mode="after")
    def _alpha_is_feddyns(self) -> Self:
        if self.name == "feddyn" and self.alpha is None:
            raise ValueError("alpha: required for feddyn; set it, e.g. to 0.01")
        if self.name != "feddyn" and self.alpha is not None:
            raise ValueError(f"alpha: only feddyn uses this key, not {self.name}; leave it out")
        return self

    def check(self, workload: Any) -> None:
        """Raise `ValueError` (one line: key, remedy) if the rest of the ``workload`` section does not fit."""
        name = self.name
        if workload.optimizer != "sgd" or workload.momentum:
            optimizer = f"momentum: {workload.momentum:g}" if workload.optimizer == "sgd" else workload.optimizer
            raise ValueError(
                f"drift_correction: {name} corrects plain gradient steps, not {optimizer}; set optimizer: sgd, "
                "momentum: 0"
            )
        schedule = workload.learning_rate_schedule
        if name == "scaffold" and schedule is not None and schedule.last == 0:
            raise ValueError(
                "learning_rate_schedule.last: 0, but scaffold divides by the learning rate; set it above 0"
            )


DriftCorrectionKey = Annotated[
    DriftCorrectionSection | None,
    Field(
        exclude_if=lambda section: section is None,
        description="Correction of the drift of local training by a state that each client keeps, e.g. {name: "
        "scaffold}. Unset: FedAvg",
    ),
]


class Scaffold(ClientAlgorithm):
    """SCAFFOLD: y <- y - eta (g_i(y) - c_i + c), K times; then c_i' = c_i - c + (x - y) / (K eta) (option II).

    Clients receive one vector (x, c), and return (Delta y_i, eta Delta c_i). The server's eta_g is that of
    ``aggregation.server_optimizer``, 1 if unset.
    """

    name = "scaffold"
    arrays = ("c",)

    def payload_length(self, dimension: int) -> int:
        """Return d + p."""
        return dimension + len(self.initial_state)

    def payload(self, model: npt.NDArray[np.float32], memory: Memory) -> npt.NDArray[np.float32]:
        """Return (x, c)."""
        # The server keeps c in float64, so that many small changes add up; the wire has float32.
        return np.concatenate([model, memory[SCAFFOLD_CORRECTION].astype(np.float32)])

    def local_update(
        self, workload: DriftCorrectedWorkload, task: LocalTask
    ) -> tuple[LocalUpdate, npt.NDArray[np.float32]]:
        """Train with the correction c - c_i, and return (Delta y_i, eta Delta c_i) and c_i'.

        A client without samples takes no step and keeps its control variate.
        """
        own, (model, common) = task.own, np.split(task.payload, [self.info.dimension])
        rate = self.info.learning_rate_in(task.round_number)
        update, steps = workload.train_corrected(task.client, model, task.round_number, common - own)
        change = np.zeros(len(own), np.float32)
        # K = 0 without samples: option II would divide by zero.
        if steps:
            # Option II: c_i' - c_i = -c + (x - y) / (K eta), where update.delta is y - x.
            change = (-common.astype(np.float64) - update.delta[: len(own)] / (steps * rate)).astype(np.float32)
        # Times eta: both parts have the magnitude of an update, so clipping and quantisation treat them alike.
        both = np.concatenate([update.delta, np.float32(rate) * change])
        return replace(update, delta=both), own + change

    def step(self, memory: Memory, mean: Floats, weight: float, round_number: int) -> Floats:
        """Return the mean Delta y, and add |S|/N times the mean Delta c to c."""
        step, change = np.split(mean, [self.info.dimension])
        # The same float32 as the clients multiplied by, so that eta cancels exactly.
        rate = float(np.float32(self.info.learning_rate_in(round_number)))
        # c <- c + |S|/N times the mean change (Algorithm 1).
        memory[SCAFFOLD_CORRECTION] = memory[SCAFFOLD_CORRECTION] + self.info.share(weight) / rate * change
        return step


class FedDyn(ClientAlgorithm):
    """FedDyn: a client minimises L_i(y) - <g_i, y> + alpha/2 |y - x|^2, by steps; then g_i' = g_i - alpha Delta_i.

    The server computes h' = h - alpha |S|/N mean Delta and x' = x + mean Delta - h'/alpha.

    Args:
        info, initial_state: as in `ClientAlgorithm`.
        alpha: strength of the pull towards x.
    """

    name = "feddyn"
    arrays = ("h",)

    def __init__(self, info: TaskInfo, initial_state: npt.NDArray[np.float32], alpha: float) -> None:
        super().__init__(info, initial_state)
        self.alpha = alpha

    def local_update(
        self, workload: DriftCorrectedWorkload, task: LocalTask
    ) -> tuple[LocalUpdate, npt.NDArray[np.float32]]:
        """Train with the term -g_i, and return Delta_i and g_i'."""
        # The workload adds the pull alpha (y - x) itself, as it changes with each step.
        update, _ = workload.train_corrected(task.client, task.payload, task.round_number, -task.own)
        return update, task.own - np.float32(self.alpha) * update.delta[: len(task.own)]

    def step(self, memory: Memory, mean: Floats, weight: float, round_number: int) -> Floats:
        """Return mean Delta - h'/alpha, and update h."""
        alpha, moved = self.alpha, mean[: len(self.initial_state)]
        # h first: the new h is part of this round's step.
        memory[FEDDYN_CORRECTION] = memory[FEDDYN_CORRECTION] - alpha * self.info.share(weight) * moved
        step = mean.copy()
        # Statistics of batch normalisation come after the parameters: they are averaged only.
        step[: len(moved)] -= memory[FEDDYN_CORRECTION] / alpha
        return step


def drift_correction(
    section: DriftCorrectionSection, info: TaskInfo, workload: DriftCorrectedWorkload
) -> ClientAlgorithm:
    """Return the algorithm that a section names, for this workload.

    Args:
        section: ``workload.drift_correction``.
        info: the learning task.
        workload: the workload.
    """
    # Zeros, as the server's c and h: they stay the weighted sums of the clients' states.
    initial_state = np.zeros(workload.corrected, np.float32)
    return Scaffold(info, initial_state) if section.name == "scaffold" else FedDyn(info, initial_state, section.pull)
