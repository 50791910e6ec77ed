"""Clients of Lotto's Figures 8 and 9, which differ in data and in speed.

Jiang et al., arXiv 2401.02880, section 5.3. Figure 8 measures the clients and Figure 9 trains them, on the
applications' data sets (``--data``) or on generated data of their shapes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from analysis.reproduction.contract import (
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from analysis.reproduction.experiments import declared
from analysis.reproduction.lotto import published as paper
from analysis.reproduction.lotto.overhead import DATASETS, RING_BITS
from analysis.reproduction.lotto.published import Application
from testbed.experiment.schema import Experiment

ZIPF = 1.2
"""Exponent a of the response latencies (section 5.3)."""

EXCLUDE = 0.2
"""Threshold of all strategies (section 5.3)."""

DATA_FILES: dict[Application, str] = {
    "FEMNIST": "FEMNIST in the layout of LEAF, TensorFlow Federated or FedScale",
    "OpenImage": "OpenImage in FedScale's layout",
    "Reddit": "Reddit in the layout of LEAF or FedScale",
}


@dataclass(frozen=True)
class ClientSetting:
    """Clients with different data and devices.

    Attributes:
        population: n.
        participants: s.
        model: model of `workloads`.
        samples_per_client: number of samples; None: as varied as in the application.
        test_samples: number of samples of an evaluation.
        application: application of the data.
        secagg: whether updates are summed by secure aggregation instead of in the clear.
        workload: further keys of the workload, which replace the paper's.
        notes: resulting differences from the paper, as text.
        data: folder of the application's data set; None: generated data of its shape.
    """

    population: int = 700
    participants: int = 70
    model: str = "femnist-cnn"
    samples_per_client: int | None = None
    test_samples: int = 2000
    application: Application = "FEMNIST"
    secagg: bool = False
    workload: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    data: Path | None = None

    @property
    def slowest(self) -> float:
        """Device factor of the slowest client, relative to the fastest: section 3.5 has i**-a for the i-th slowest."""
        return float(self.population**ZIPF)


SETTINGS: dict[Application, dict[str, ClientSetting]] = {
    "FEMNIST": {"small": ClientSetting(150, 15, model="mlp"), "paper": ClientSetting(secagg=True)},
    "OpenImage": {
        "small": ClientSetting(
            60, 6, "mobilenet-v2", 40, 500, "OpenImage", secagg=True, workload={"image_size": 64},
            notes=("data: images of 64x64 pixels, and 40 of each client; the paper's have 256x256",),
        ),
        "paper": ClientSetting(700, 70, "mobilenet-v2", None, 2000, "OpenImage", secagg=True),
    },
    "Reddit": {
        "small": ClientSetting(
            100, 10, "albert-small", None, 200, "Reddit", secagg=True,
            workload={"sequence_length": 16, "vocabulary_size": 500, "optimizer": "adamw", "learning_rate": 3e-3},
            notes=(
                "scale: two layers of 64 units instead of ALBERT base, sequences of 16 words of 500, and a learning "
                "rate that suits them, 0.003; the paper's is 8e-5",
            ),
        ),
        "paper": ClientSetting(700, 70, "albert", None, 500, "Reddit", secagg=True, workload={"optimizer": "adamw"}),
    },
}  # fmt: skip
"""Clients by application and scale."""


def setting_of(application: Application, context: ReproductionContext) -> ClientSetting:
    """Return the clients of an application at the context's scale, with the context's data.

    Args:
        application: the application.
        context: where and how to run.
    """
    return replace(SETTINGS[application][context.scale], data=context.data)


def experiment(
    setting: ClientSetting, name: str, rounds: int, selection: Mapping[str, Any], sweep: Mapping[str, Sequence[Any]]
) -> Experiment:
    """Return the application's training with devices that follow Zipf's law.

    Args:
        setting: the clients.
        name: name of the experiment.
        rounds: number of rounds.
        selection: keys of the section `selection`, without the participants.
        sweep: values by key.
    """
    application = setting.application
    up_bytes = RING_BITS / 8 if setting.secagg else 4.0  # elements of the ring, or float32
    implied = paper.derived(application, transfer_bytes=(4 + up_bytes) * paper.PARAMETERS[application])
    costs = {"train.parameter_example": implied.parameter_example_s}
    aggregation: dict[str, Any] = {"protocol": "plain"}
    if setting.secagg:
        aggregation = {"protocol": "secagg", "threshold": 0.7, "bits": RING_BITS}
        costs["mask.element"] = implied.mask_element_s
    decay: dict[str, float] = {}
    if application in paper.LEARNING_RATE_DECAY:
        factor, every = paper.LEARNING_RATE_DECAY[application]
        decay = {"learning_rate_decay": factor, "learning_rate_decay_every": every}
    data: dict[str, Any] = {"dataset": DATASETS[application]}
    if setting.data is not None:
        data = {"dataset": application.lower(), "path": str(setting.data)}
    return declared(
        name,
        "{seed: 1, workload: {evaluate_every: 1}, time: {deadline_s: 86400.0}}",
        {
            "rounds": rounds,
            "population": setting.population,
            "workload": {
                **data,
                "model": setting.model,
                "samples_per_client": setting.samples_per_client,
                "test_samples": setting.test_samples,
                "epochs": paper.EPOCHS[application],
                "batch_size": paper.BATCH_SIZE,
                "learning_rate": paper.LEARNING_RATES[application],
                **decay,
                **setting.workload,
            },
            "selection": {"participants": setting.participants, **selection},
            "aggregation": aggregation,
            "links": paper.LINKS,
            "devices": {"model": "zipf", "exponent": ZIPF, "fastest": 1.0, "slowest": setting.slowest},
            "time.costs": costs,
            "sweep": {key: list(values) for key, values in sweep.items()},
        },
    )


_MODELS = {
    "FEMNIST": "the CNN of 1,018,174 parameters",
    "OpenImage": "MobileNetV2 of width 0.25",
    "Reddit": "ALBERT base",
}
_SHAPES = {
    "FEMNIST": "one writer per client, as many images as FEMNIST's writers have",
    "OpenImage": "one photographer per client, 596 labels",
    "Reddit": "one user per client, words that follow one another by chance",
}


def measured_setting(
    setting: ClientSetting, rounds: int, seeds: Sequence[int], differs: Sequence[str], choices: Mapping[str, Any]
) -> Setting:
    """Return the setting of a figure's measurements.

    Args:
        setting: the clients.
        rounds: number of rounds of each run.
        seeds: seeds of the repetitions.
        differs: further differences from the paper.
        choices: further inputs of the conclusions.
    """
    application = setting.application
    generated = f"generated ({DATASETS[application]}, {_SHAPES[application]})"
    on_generated = f"data: {generated}; accuracies, and how much clients' data differ, are this task's"
    scale = (
        f"scale: {setting.population} clients, {setting.participants} participants, model {setting.model}; the paper: "
        f"700, 70 and {_MODELS[application]}"
    )
    is_full = (setting.population, setting.model) == (700, SETTINGS[application]["paper"].model)
    return Setting(
        "stand-in" if setting.data is None else "paper",
        generated if setting.data is None else DATA_FILES[application],
        list(seeds),
        {"population": setting.population, "participants": setting.participants, "rounds": rounds},
        [
            *([] if is_full else [scale]),
            *([on_generated] if setting.data is None else []),
            *setting.notes,
            *differs,
        ],
        {"secagg": setting.secagg, **choices},
    )


def remarks(application: Application, setting: Setting) -> list[str]:
    """Return the differences from the paper in both figures.

    Args:
        application: application of the panel.
        setting: setting of the measurements.
    """
    slowest = setting.sizes["population"] ** ZIPF
    return [
        *(f"{line[0].upper()}{line[1:]}." for line in setting.differs),
        "Devices follow Zipf's law with a = 1.2 as in section 3.5, i**-a for the i-th slowest: the slowest takes "
        f"{slowest:.0f} times as long as the fastest, half of the clients at most {2**ZIPF:.1f} times. The "
        "cost of a training step follows from the paper's own Table 2 (see lotto-table2).",
        _summed(application, setting),
    ]


def _summed(application: Application, setting: Setting) -> str:
    """Return how updates are summed, and the consequence for the time of a round."""
    if setting.choices["secagg"]:
        return (
            "SecAgg sums the updates, and slow devices are slow at masks, too. The cost of an element follows from "
            "Table 2 as well."
        )
    implied = paper.derived(application, transfer_bytes=8.0 * paper.PARAMETERS[application])
    participants = setting.sizes["participants"]
    training_s = paper.SAMPLES[application] * paper.EPOCHS[application] * implied.parameter_example_s
    share = participants * implied.mask_element_s / training_s
    return (
        f"Updates are summed in the clear. SecAgg's {participants:.0f} masks would take a device {share:.0%} of its "
        "training time once more, and a slow device as many times longer as in training: SecAgg would add most to the "
        "rounds of the strategies that wait for the slowest devices."
    )


def panel_name(figure: str, application: Application) -> str:
    """Return the name of a figure's panel; FEMNIST's, the first, has the figure's own name.

    Args:
        figure: such as ``fig8``.
        application: application of the panel.
    """
    return f"lotto-{figure}" + ("" if application == "FEMNIST" else f"-{application.lower()}")


def panels(
    figure: int,
    title: str,
    place: str,
    measure: Callable[[Application, ReproductionContext], Measurements],
    conclude: Callable[[Application, Measurements], ReproductionResult],
) -> tuple[Reproduction, ...]:
    """Return one reproduction for each of a figure's three panels.

    Args:
        figure: number of the figure.
        title: content of the figure.
        place: further place in the paper, after the panel's letter.
        measure: function that measures one application.
        conclude: function that makes one application's result.
    """
    return tuple(
        Reproduction(
            panel_name(f"fig{figure}", application),
            f"{title} ({application} panel; generated data without --data)",
            f"Jiang et al., Lotto, arXiv 2401.02880, Figure {figure} ({letter}){place}",
            data_files=DATA_FILES[application],
            built_in_data="stand-in",
            measure=partial(measure, application),
            conclude=partial(conclude, application),
        )
        for letter, application in zip("abc", paper.APPLICATIONS, strict=True)
    )
