"""From the names in an experiment to the classes that they select, built in or the user's own."""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from testbed.aggregation import catalogue as aggregations
from testbed.aggregation.contract import AggregationParameters, AggregationProtocol
from testbed.aggregation.kit.ring_elements import noise_of
from testbed.errors import ExperimentError
from testbed.plugins import options as plugin_options
from testbed.plugins.classes import check_subclass, plugin_class
from testbed.selection import catalogue as selections
from testbed.selection.contract import SelectionParameters, SelectionProtocol

WithAttacks = Callable[[Any, set[str]], Any]
"""From the class of an honest server, and the names of the protocols that it is, to the class that runs."""


def _as_it_is(honest: Any, protocols: set[str]) -> Any:
    return honest


def selection_protocol(
    parameters: SelectionParameters, population: int, with_attacks: WithAttacks = _as_it_is
) -> SelectionProtocol:
    """The server side of the selection protocol of `parameters`, `with_attacks` of the adversary."""
    protocol: SelectionProtocol = _server("selection", parameters, selections.PROTOCOLS, with_attacks, population)
    return protocol


def aggregation_protocol(
    parameters: AggregationParameters, with_attacks: WithAttacks = _as_it_is
) -> AggregationProtocol:
    """The server side of the aggregation protocol of `parameters`, `with_attacks` of the adversary."""
    protocol: AggregationProtocol = _server("aggregation", parameters, aggregations.PROTOCOLS, with_attacks)
    return protocol


def plugin_protocol(section: str, name: str) -> type[SelectionProtocol] | type[AggregationProtocol]:
    """The class ``package.module:Name`` of a section; raises `ExperimentError` where it does not keep the contract."""
    found: type[SelectionProtocol] | type[AggregationProtocol] = plugin_class(name, f"{section}.protocol")
    base = SelectionProtocol if section == "selection" else AggregationProtocol
    check_subclass(found, base, name, f"{section}.protocol")
    return found


def plugin_parameters(section: str, parameters: Any, kind: type) -> tuple[Any, dict[str, Any]]:
    """What a user-defined class is constructed with: its parameters, and its options as keyword arguments.

    A class has the parameters of its attribute `Parameters`, or of the built-in protocol that it derives from. Others
    get the section as it is, and declare what further keys they take as keyword arguments of their ``__init__``.

    Args:
        section: ``selection`` or ``aggregation``.
        parameters: that section of the experiment.
        kind: the class that it names.

    Raises:
        ExperimentError: a key that it does not declare; one line each.
    """
    declared = _declared(kind, SelectionParameters if section == "selection" else AggregationParameters)
    if declared is not None:
        given = parameters.model_dump(mode="json", exclude={"protocol"})
        whose = f" ({declared.__name__} of {parameters.protocol})"
        return plugin_options.validated(declared, given, section, whose, unsaid=("protocol",)), {}
    arguments = 2 if section == "selection" else 1
    further = parameters.model_extra or {}
    return parameters, plugin_options.as_keywords(kind, parameters.protocol, section, further, arguments, "Parameters")


def _declared(kind: Any, base: type[Any]) -> type[Any] | None:
    """The parameters that the nearest of the classes declares which `kind` derives from; None: none does."""
    built_in: tuple[dict[Any, Any], ...] = (aggregations.PROTOCOLS, selections.PROTOCOLS)
    of_built_in = {server: kind for known in built_in for kind, server in reversed(known.items())}
    for ancestor in kind.__mro__:
        found = vars(ancestor).get("Parameters", of_built_in.get(ancestor))
        if isinstance(found, type) and issubclass(found, base):
            return found
        if "Parameters" in vars(ancestor):
            raise ExperimentError(
                f"{kind.__module__}:{kind.__name__}: Parameters must be a subclass of {base.__module__}.{base.__name__}"
            )
    return None


def _server(section: str, parameters: Any, known: Mapping[Any, Any], with_attacks: WithAttacks, *arguments: Any) -> Any:
    """A user-defined class counts as the built-in protocols, too, that it derives from."""
    name: str = parameters.protocol
    if type(parameters) in known:
        return with_attacks(known[type(parameters)], {name})(parameters, *arguments)
    honest = plugin_protocol(section, name)
    given, keywords = plugin_parameters(section, parameters, honest)
    if section == "selection":  # the aggregation's are checked for as many participants as there may be
        try:
            given.check(*arguments)
        except ValueError as error:
            raise ExperimentError(f"{section}.{error}") from None
    names = {name, *(str(kind.model_fields["protocol"].default) for kind in known if issubclass(honest, known[kind]))}
    plugin_options.bind(honest, name, f"{section}.protocol", (given, *arguments), keywords)
    made = with_attacks(honest, names)(given, *arguments, **keywords)
    _check_made(
        made, SelectionParameters if section == "selection" else AggregationParameters, f"{section}.protocol: {name}"
    )
    return made


def _check_made(made: Any, parameters: type[BaseModel], where: str) -> None:
    """Raise `ExperimentError` for what the ``__init__`` of a user-defined protocol has left undone, or does in vain."""
    if "parameters" not in vars(made):
        raise ExperimentError(f"{where}: its __init__ must call super().__init__, and does not")
    if not isinstance(made.parameters, parameters):
        raise ExperimentError(
            f"{where}: its attribute parameters must be of {parameters.__module__}.{parameters.__name__}"
        )
    if noise_of(made.parameters) is not None and type(made).accountant is AggregationProtocol.accountant:
        raise ExperimentError(
            f"{where}: participants add noise (aggregation.noise), and it does not say what that costs: override "
            "accountant, or inherit from testbed.NoisyProtocol"
        )
