"""Messages of an app's server, recorded by running its `ServerApp` against a grid that answers for every client.

Each answer returns the model of its message.
"""

import signal
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from types import FrameType, SimpleNamespace
from typing import Any

import numpy.typing as npt
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from .environment import Unfit
from .older_api import GetParametersIns, compat
from .records import EVALUATE_INS, FIT_INS, Configuration, arrays_of, configuration_of, is_legacy, legacy_echo

RECORDED_ROUNDS = 50
"""Largest number of recorded rounds; later rounds use the last one's configuration."""

_ROUND = "server-round"
_PATIENCE = 5  # number of times that a server may ask for the nodes before it sends a message


class Enough(Exception):
    """Enough rounds of the server are recorded."""


class RecordingGrid(Grid):
    """Grid that answers for the clients with the received model, and records the server's messages.

    Args:
        population: number of clients; their node ids are 1, 2, ...
        client: returns a client's own answer to a message that is about neither training nor evaluation.

    Attributes:
        arrays: the first model, by name of its arrays; empty until it is sent.
        rounds: number of recorded rounds.
        participants: clients that were asked to train in the first round.
        strategy: name of the strategy's class; empty if unknown (older API).
        unfit: the reason why the server is not supported; empty if it is.
    """

    def __init__(self, population: int, client: Callable[[Message, int], Message]) -> None:
        self.arrays: dict[str, npt.NDArray[Any]] = {}
        self.participants = 0
        self.strategy = ""
        self.unfit = ""
        self._population, self._client = population, client
        self._configurations: dict[str, Configuration] = {}
        self._evaluations: dict[str, Configuration] = {}
        self._key, self._evaluation_key = "arrays", "arrays"
        self._replies: dict[str, Message] = {}
        self._run: Any = SimpleNamespace(run_id=1)
        self._asked_for_nodes = 0
        self._lock = threading.Lock()

    # -- interface of a grid -------------------------------------------------------------------------------------------

    def set_run(self, run: Any) -> None:
        """Set the run."""
        self._run = run

    @property
    def run(self) -> Any:
        """The run."""
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Return a message to a node."""
        return Message(content, dst_node_id=dst_node_id, message_type=message_type, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of all clients; a server that keeps waiting for more is interrupted."""
        self._asked_for_nodes += 1
        if self._asked_for_nodes > _PATIENCE and _waits_for_clients():
            self.unfit = f"the app's server waits for more clients than the {self._population} of this experiment"
            signal.pthread_kill(_main_thread(), signal.SIGINT)  # in the older API another thread asks
        return list(range(1, self._population + 1))

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Answer messages, and return the ids of the answers."""
        names = []
        for reply in self.send_and_receive(messages):
            names.append(str(len(self._replies)))
            self._replies[names[-1]] = reply
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the answers with these ids."""
        return [self._replies.pop(name) for name in message_ids if name in self._replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Record messages, and return their answers."""
        questions = list(messages)
        self._asked_for_nodes = 0
        self.strategy = self.strategy or _strategy_above(sys._getframe(1))
        with self._lock:  # the older API asks from several threads
            if questions and questions[0].metadata.message_type in ("train", "evaluate"):
                self._write_down(questions[0].metadata.message_type, questions)
        return [self._answer(message) for message in questions]

    # -- recording -----------------------------------------------------------------------------------------------------

    def _write_down(self, kind: str, questions: Sequence[Message]) -> None:
        """Record messages: those of the older API come one by one with their round, those of the newer API together."""
        written = self._configurations if kind == "train" else self._evaluations
        label = questions[0].metadata.group_id or str(len(written) + 1)
        if kind == "train" and label not in written and len(written) >= RECORDED_ROUNDS:
            raise Enough
        for message in questions:
            configuration = configuration_of(message.content)
            if written.setdefault(label, configuration) != configuration:
                self._refuse(f"sends its clients different configurations ({kind}); only a common one is supported")
        keys = list(questions[0].content.array_records)
        if len(keys) != 1:
            self._refuse(f"sends {len(keys)} array records ({kind}); only one, the model, is supported")
        if kind == "evaluate":
            self._evaluation_key = keys[0]
            return
        self._key = keys[0]
        if len(written) == 1:
            self.participants += len(questions)
        self.arrays = self.arrays or arrays_of(questions[0].content)
        if not any(array.dtype.kind == "f" for array in self.arrays.values()):
            self._refuse("sends a model without floating-point parameters, such as trees; only floats are averaged")

    def _refuse(self, why: str) -> None:
        self.unfit = f"the app's server {why}"
        raise Unfit(self.unfit)

    def _answer(self, message: Message) -> Message:
        kind, content = message.metadata.message_type, message.content
        if kind not in ("train", "evaluate"):
            return self._client(message, message.metadata.dst_node_id - 1)
        if is_legacy(content):
            return Message(legacy_echo(content, kind), reply_to=message)
        records = RecordDict({"metrics": MetricRecord({"num-examples": 1})})
        if kind == "train":
            arrays = next(iter(content.array_records.values()))
            records["arrays"] = ArrayRecord(dict(arrays.items()))
        return Message(records, reply_to=message)

    def ask_for_parameters(self) -> None:
        """Get the first model from the first client (older API), if the server sends none."""
        content = compat.getparametersins_to_recorddict(GetParametersIns({}))
        message = Message(content, dst_node_id=1, message_type="get_parameters")
        try:
            self.arrays = arrays_of(self._client(message, 0).content)
        except ValueError:  # the newer API has no such message
            return
        self._key = FIT_INS + "parameters"
        self._configurations = {"1": {FIT_INS + "config": {}}}

    # -- recorded configurations ---------------------------------------------------------------------------------------

    @property
    def rounds(self) -> int:
        """Number of recorded rounds."""
        return len(self._configurations)

    def configuration(self, round_number: int) -> tuple[Configuration, str]:
        """Return the configuration for training in a round, and the key of the model."""
        return _of_round(self._configurations, round_number), self._key

    def evaluation(self, round_number: int) -> tuple[Configuration, str]:
        """Return the configuration for evaluation in a round, and the key of the model.

        If none was recorded, these are the usual ones.
        """
        if self._evaluations:
            return _of_round(self._evaluations, round_number), self._evaluation_key
        if self._key.startswith(FIT_INS):
            return {EVALUATE_INS + "config": {}}, EVALUATE_INS + "parameters"
        return {"config": {_ROUND: round_number}}, self._key


def _of_round(written: dict[str, Configuration], round_number: int) -> Configuration:
    last = list(written.values())[min(round_number, len(written)) - 1]
    return {
        name: {key: round_number if key == _ROUND else value for key, value in values.items()}
        for name, values in last.items()
    }


def _frames(frame: FrameType | None) -> Iterable[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _strategy_above(frame: FrameType) -> str:
    """Return the name of the running strategy, from the calling frames."""
    owners = (above.f_locals.get("self") for above in _frames(frame))
    return next((type(owner).__name__ for owner in owners if isinstance(owner, Strategy)), "")


def _waits_for_clients() -> bool:
    """Return whether the main thread is within Flower's wait for clients."""
    main = sys._current_frames().get(_main_thread())
    return any(frame.f_code.co_name in ("sample_nodes", "wait_for") for frame in _frames(main))


def _main_thread() -> int:
    return threading.main_thread().ident or 0


def record(grid: RecordingGrid, server: Any, run_config: dict[str, Any]) -> str:
    """Run an app's server against the grid, and return a note if it ended early, else "".

    Args:
        grid: records the messages.
        server: the `ServerApp`.
        run_config: the app's configuration.

    Raises:
        Unfit: the server is not supported.
        Exception: the server's own error before the first model.
    """
    note = ""
    try:
        server(grid, Context(1, 0, {}, RecordDict(), dict(run_config)))
    except KeyboardInterrupt:  # raised by the grid
        if not grid.unfit:
            raise
    except Enough:
        pass
    except Exception as error:
        if not grid.arrays:
            raise
        note = f"the app's server ended after {grid.rounds} of its rounds: {type(error).__name__}: {error}"
    if grid.unfit:
        raise Unfit(grid.unfit)
    return note
