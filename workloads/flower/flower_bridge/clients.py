"""Clients of a Flower app, and their questions."""

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import flwr
import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

from .environment import Unfit, attribute, components, identify, one_thread, seed_generators
from .records import ACCURACY, EXAMPLES, LOSS, TRAIN_LOSS, Configuration, metric_name, metrics_of, named, only
from .server import RecordingGrid, record

_USUAL_POPULATION = 10


class App:
    """A Flower app with a population of clients.

    Args:
        request: ``folder``, or ``client`` (and perhaps ``server``) as ``module:attribute``; ``run_config`` that
            replaces values of the app's own; ``population`` (None: that of the app's simulation, or 10); ``seed`` (64
            digits in hex); ``discard_state``, whether clients may keep data in their context although it is discarded.

    Raises:
        Unfit: an app that is not supported.
    """

    def __init__(self, request: Mapping[str, Any]) -> None:
        config: dict[str, Any] = {}
        client, server = request["client"], request["server"]
        supernodes: int | None = None
        if request["folder"]:
            folder = Path(request["folder"])
            client, server, config, supernodes = components(folder)
            os.chdir(folder)
            for key in request["run_config"]:
                if key not in config:
                    raise Unfit(f"run_config: the app has no {key}; allowed: {', '.join(sorted(config)) or 'none'}")
        sys.path.insert(0, os.getcwd())
        self._population = int(request["population"] or supernodes or _USUAL_POPULATION)
        self._run_config = config | request["run_config"]
        self._discard_state = bool(request["discard_state"])
        identify()
        logging.getLogger("flwr").setLevel(logging.ERROR)
        seed_generators(request["seed"])
        self._client = attribute(client)
        server_app = attribute(server) if server else None
        one_thread()
        self._grid = RecordingGrid(
            self._population, lambda message, client: self._client(message, self._context(client))
        )
        seed_generators(request["seed"])
        note = record(self._grid, server_app, self._run_config) if server_app is not None else ""
        if not self._grid.arrays:
            self._grid.ask_for_parameters()
        if not self._grid.arrays and server_app is not None:
            raise Unfit("the app's server sends no model to train; apps that only answer queries are not supported")
        if not self._grid.arrays:
            raise Unfit(
                "the first model is unknown, as the clients have no get_parameters; name the server, too "
                "(server: module:app)"
            )
        self._arrays = self._grid.arrays
        self._floats = {name: array for name, array in self._arrays.items() if array.dtype.kind == "f"}
        self._notes = [note] if note else []
        if self._discard_state:
            self._notes.append("data that clients keep in context.state are discarded after each call")
        self._check_arrays()

    def _check_arrays(self) -> None:
        whole = [name for name in self._arrays if name not in self._floats]
        for name in whole:
            array = self._arrays[name]
            # A single integer, such as a count of batches, can stay constant; more integers are a part of the model.
            if array.dtype.kind not in "iub" or array.size > 1:
                raise Unfit(f"array {name} has {array.size} elements of type {array.dtype}; only floats are aggregated")
        if not self._floats:
            raise Unfit("the model has no parameters of floating point")
        if whole:
            self._notes.append(f"not aggregated, but constant: {', '.join(whole)}")
        if any(array.dtype.itemsize > 4 for array in self._floats.values()):
            self._notes.append("float64 arrays are aggregated as float32")

    def description(self) -> dict[str, Any]:
        """Return the app's description for the testbed."""
        return {
            "names": list(self._floats),
            "shapes": [list(array.shape) for array in self._floats.values()],
            "notes": self._notes,
            "strategy": self._grid.strategy,
            "rounds": self._grid.rounds,
            "participants": self._grid.participants,
            "population": self._population,
            "run_config": self._run_config,
            "flwr": flwr.__version__,
        }

    def initial(self) -> npt.NDArray[np.float32]:
        """Return the first model, (d,) float32."""
        return _vector(self._floats)

    def train(
        self, client: int, round_number: int, seed: str, model: npt.NDArray[np.float32], loss: str
    ) -> tuple[dict[str, Any], npt.NDArray[np.float32]]:
        """Train one client.

        Args:
            client: the client.
            round_number: the round.
            seed: seed of the generators, in hex.
            model: (d,) float32.
            loss: name of the metric with the loss; empty: it is searched for.

        Returns:
            the samples and the loss (None if missing) that the client reports; and its model, (d,) float32.
        """
        reply = self._ask("train", client, seed, self._content(self._grid.configuration(round_number), model))
        local = {name: value.numpy() for name, value in only(reply.array_records, "reply").items()}
        if set(local) != set(self._arrays) and len(local) == len(self._arrays):  # the older API's have no names
            local = dict(zip(self._arrays, local.values(), strict=True))
        shapes = {name: array.shape for name, array in local.items()}
        if shapes != {name: array.shape for name, array in self._arrays.items()}:
            raise Unfit(f"client {client} returns arrays of other shapes than the model that it received: {shapes}")
        metrics = metrics_of(reply)
        examples = named(metrics, EXAMPLES)
        if examples is None or examples != int(examples) or examples < 0:
            raise Unfit(f"client {client} reports num-examples = {examples}; report a whole number")
        loss_name = metric_name(metrics, "train_loss", loss, TRAIN_LOSS, "loss")
        return (
            {"samples": int(examples), "loss": None if loss_name is None else metrics[loss_name]},
            _vector({name: local[name] for name in self._floats}),
        )

    def evaluate(
        self, client: int, round_number: int, seed: str, model: npt.NDArray[np.float32], names: Mapping[str, str]
    ) -> dict[str, Any]:
        """Evaluate on one client.

        Args:
            client, round_number, seed, model: as in `train`.
            names: ``loss`` and ``accuracy``, the names of their metrics; empty: they are searched for.

        Returns:
            the client's samples, and loss and accuracy if it reports them; empty if the app evaluates nothing.
        """
        content = self._content(self._grid.evaluation(round_number), model)
        try:
            reply = self._ask("evaluate", client, seed, content)
        except ValueError as error:
            if str(error).startswith("No evaluate function"):
                return {}
            raise
        metrics = metrics_of(reply)
        usual = {"loss": (LOSS, "loss"), "accuracy": (ACCURACY, "acc")}
        found_names = {key: metric_name(metrics, key, names[key], *usual[key]) for key in usual}
        report = {key: float(metrics[name]) for key, name in found_names.items() if name is not None}
        examples = named(metrics, EXAMPLES)
        if report and examples is None:
            raise Unfit(
                f"client {client} reports {', '.join(sorted(metrics))} of its evaluation, but no num-examples, which "
                "weight the mean over clients; report num-examples, too"
            )
        return {"samples": int(examples or 0), "names": found_names, "reported": sorted(metrics), **report}

    def _ask(self, kind: str, client: int, seed: str, content: RecordDict) -> RecordDict:
        seed_generators(seed)
        context = self._context(client)
        reply = self._client(Message(content, dst_node_id=client + 1, message_type=kind), context)
        if reply.has_error():
            raise RuntimeError(f"client {client} answers {kind} with an error: {reply.error.reason}")
        # State would stay in this process: results would depend on the process that trains the client.
        if len(context.state) and not self._discard_state:
            raise Unfit(
                f"client {client} keeps {', '.join(context.state)} in context.state for later rounds, which is not "
                "supported: a client's results must depend only on the model, its data and the round; "
                "workload.flower.discard_state: true runs the app with an empty state in each call"
            )
        return reply.content

    def _context(self, client: int) -> Context:
        node = {"partition-id": client, "num-partitions": self._population}
        return Context(1, client + 1, node, RecordDict(), dict(self._run_config))

    def _content(self, configured: tuple[Configuration, str], model: npt.NDArray[np.float32]) -> RecordDict:
        configuration, key = configured
        arrays, start = dict(self._arrays), 0
        for name, array in self._floats.items():
            arrays[name] = model[start : start + array.size].reshape(array.shape).astype(array.dtype)
            start += array.size
        content = RecordDict({key: ArrayRecord({name: Array(array) for name, array in arrays.items()})})
        for name, values in configuration.items():
            content[name] = ConfigRecord(dict(values))
        return content


def _vector(arrays: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.float32]:
    return np.concatenate([array.astype(np.float32).ravel() for array in arrays.values()])
