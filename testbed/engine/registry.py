"""From the names in an experiment to the classes that they select, built in or the user's own."""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from testbed.aggregation import catalogue as aggregations
from testbed.aggregation.contract import AggregationParameters, AggregationProtocol
from testbed.aggregation.kit.ring_elements import noise_of
from testbed.errors import ExperimentError
from testbed.plugins import options as plugin_options
from testbed.plugins.classes import check_members, check_subclass, plugin_class
from testbed.selection import catalogue as selections
from testbed.selection.contract import SelectionParameters, SelectionProtocol

WithAttacks = Callable[[Any, set[str]], Any]
"""From the class of an honest server, and the names of the protocols that it is, to the class that runs."""


def _as_it_is(honest: Any, protocols: set[str]) -> Any:
    return honest


def selection_protocol(
    parameters: SelectionParameters, population: int, with_attacks: WithAttacks = _as_it_is
) -> SelectionProtocol:
    """Return the server side of the selection protocol.

    Args:
        parameters: parameters of the protocol.
        population: number of clients n.
        with_attacks: applies the adversary's attacks to a protocol class.
    """
    protocol: SelectionProtocol = _server("selection", parameters, selections.PROTOCOLS, with_attacks, population)
    return protocol


def aggregation_protocol(
    parameters: AggregationParameters, with_attacks: WithAttacks = _as_it_is
) -> AggregationProtocol:
    """Return the server side of the aggregation protocol.

    Args:
        parameters: parameters of the protocol.
        with_attacks: applies the adversary's attacks to a protocol class.
    """
    protocol: AggregationProtocol = _server("aggregation", parameters, aggregations.PROTOCOLS, with_attacks)
    return protocol


def plugin_protocol(section: str, name: str) -> type[SelectionProtocol] | type[AggregationProtocol]:
    """Return the class ``package.module:Name`` of a section.

    Args:
        section: ``selection`` or ``aggregation``.
        name: ``package.module:Name``.

    Raises:
        ExperimentError: there is no such class, or it does not keep the contract.
    """
    plugin: type[SelectionProtocol] | type[AggregationProtocol] = plugin_class(name, f"{section}.protocol")
    base = SelectionProtocol if section == "selection" else AggregationProtocol
    check_subclass(plugin, base, name, f"{section}.protocol")
    return plugin


def plugin_parameters(section: str, parameters: Any, kind: type) -> tuple[Any, dict[str, Any]]:
    """Return the constructor arguments of a user-defined class: its parameters, and its options as keyword arguments.

    The parameters are of the class's attribute `Parameters`, or of the built-in protocol that it derives from. Any
    other class gets the section unchanged, and declares further keys as keyword arguments of its ``__init__``.

    Args:
        section: ``selection`` or ``aggregation``.
        parameters: that section of the experiment.
        kind: the class that it names.

    Raises:
        ExperimentError: a key that the class does not declare; one line each.
    """
    declared = _declared(kind, SelectionParameters if section == "selection" else AggregationParameters)
    if declared is not None:
        check_members(declared, f"{section}.protocol: {parameters.protocol}")
        options = parameters.model_dump(mode="json", exclude={"protocol"})
        whose = f" ({declared.__name__} of {parameters.protocol})"
        return plugin_options.validated(declared, options, section, whose, unsaid=("protocol",)), {}
    arguments = 2 if section == "selection" else 1
    further = parameters.model_extra or {}
    return parameters, plugin_options.as_keywords(kind, parameters.protocol, section, further, arguments, "Parameters")


def _declared(kind: Any, base: type[Any]) -> type[Any] | None:
    """Return the parameters declared by the nearest base class of `kind` with a declaration; None if there is none."""
    built_in: tuple[dict[Any, Any], ...] = (aggregations.PROTOCOLS, selections.PROTOCOLS)
    # Reversed: of several parameter classes of one server, the first one stays.
    of_built_in = {server: kind for protocols in built_in for kind, server in reversed(protocols.items())}
    for ancestor in kind.__mro__:
        declared = vars(ancestor).get("Parameters", of_built_in.get(ancestor))
        if isinstance(declared, type) and issubclass(declared, base):
            return declared
        if "Parameters" in vars(ancestor):
            raise ExperimentError(
                f"{kind.__module__}:{kind.__name__}: Parameters must be a subclass of {base.__module__}.{base.__name__}"
            )
    return None


def _server(
    section: str, parameters: Any, protocols: Mapping[Any, Any], with_attacks: WithAttacks, *arguments: Any
) -> Any:
    """Return a protocol with attacks; a user-defined class also counts as its built-in base protocols."""
    name: str = parameters.protocol
    if type(parameters) in protocols:
        return with_attacks(protocols[type(parameters)], {name})(parameters, *arguments)
    honest = plugin_protocol(section, name)
    options, keywords = plugin_parameters(section, parameters, honest)
    if section == "selection":  # the aggregation's are checked for as many participants as there may be
        try:
            options.check(*arguments)
        except ValueError as error:
            raise ExperimentError(f"{section}.{error}") from None
    # An attack on a built-in protocol applies to the user's subclasses of it, too.
    names = {
        name,
        *(str(kind.model_fields["protocol"].default) for kind in protocols if issubclass(honest, protocols[kind])),
    }
    plugin_options.bind(honest, name, f"{section}.protocol", (options, *arguments), keywords)
    made = with_attacks(honest, names)(options, *arguments, **keywords)
    _check_made(
        made, SelectionParameters if section == "selection" else AggregationParameters, f"{section}.protocol: {name}"
    )
    return made


def _check_made(made: Any, parameters: type[BaseModel], where: str) -> None:
    """Raise `ExperimentError` if the ``__init__`` of a user-defined protocol is incomplete or has no effect."""
    if "parameters" not in vars(made):
        raise ExperimentError(f"{where}: its __init__ must call super().__init__, and does not")
    if not isinstance(made.parameters, parameters):
        raise ExperimentError(
            f"{where}: its attribute parameters must be of {parameters.__module__}.{parameters.__name__}"
        )
    if noise_of(made.parameters) is not None and type(made).accountant is AggregationProtocol.accountant:
        raise ExperimentError(
            f"{where}: participants add noise (aggregation.noise), but the class does not state the privacy cost: "
            "override accountant, or inherit from testbed.NoisyProtocol"
        )
