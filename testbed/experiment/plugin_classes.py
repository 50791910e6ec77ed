"""The user-defined classes that an experiment names, and where."""

from collections.abc import Iterable

from testbed.adversary.section import name_of
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment
from testbed.plugins.classes import IMPORT_CLASSES


def plugin_classes(experiment: Experiment) -> list[tuple[str, str]]:
    """The key and the name, ``package.module:Name``, of each; of an experiment without a sweep."""
    named = [
        ("selection.protocol", experiment.selection.protocol),
        ("aggregation.protocol", experiment.aggregation.protocol),
        ("workload.dataset", experiment.workload.dataset),
        ("devices.model", experiment.devices.model),
        ("links.model", experiment.links.model or ""),
        ("availability.model", experiment.availability.model),
    ]
    if experiment.adversary is not None:
        named += [("adversary.server", name_of(one)) for one in experiment.adversary.server]
        named += [("adversary.clients", name_of(one)) for one in experiment.adversary.clients]
    return [(key, name) for key, name in named if ":" in name]


def refuse_unless_imported(experiments: Iterable[Experiment], where: str, import_classes: bool) -> None:
    """Raise `ExperimentError` for user-defined classes that may not be imported."""
    names = list(dict.fromkeys(name for experiment in experiments for _, name in plugin_classes(experiment)))
    if names and not import_classes:
        raise ExperimentError(
            f"{where}: names user-defined classes, whose modules this command imports only when asked: "
            f"{', '.join(names)}; give {IMPORT_CLASSES}"
        )
