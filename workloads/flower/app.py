"""A Flower app's clients as a workload (Beutel et al., Flower, arXiv 2007.14390; the package flwr).

The app's `ClientApp` trains and evaluates, unchanged, in a process of the app's own environment (`flower_bridge`); its
configuration and first model are those that its `ServerApp` sends. Selection, aggregation and everything in between
are the testbed's: the app's strategy does not run.
"""

import contextlib
import functools
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.errors import ExperimentError
from testbed.plugins.classes import check_allowed
from testbed.workload.flower import FlowerSection
from testbed.workload.section import WorkloadSection
from workloads.contract import Evaluation, LocalUpdate
from workloads.flower.flower_bridge.frames import read_frame, write_frame
from workloads.flower.reports import (
    ClientEvaluation,
    announced_samples,
    counted_clients,
    evaluation_notes,
    mean_evaluation,
    spread,
)

_BRIDGE = (
    # `python -c` searches the working directory first, where files must not hide flwr or numpy. The option -P would
    # prevent it, but the app's interpreter may be older than 3.11, and -I would hide the user's packages.
    "import sys; sys.path[:] = filter(None, sys.path); "
    f"sys.path.insert(0, {str(Path(__file__).parent)!r}); "
    "from flower_bridge.loop import main; del sys.path[0]; main()"
)


class FlowerAppError(Exception):
    """The app raised an error; the message has its text and its place in the app."""


class FlowerProcess:
    """Process of a Flower app; calls of several threads run one after the other.

    Args:
        section: the app and its interpreter.
        population: number of clients; None: that of the app's simulation, or 10.
        seed: the experiment's seed.
        python_option: the experiment's key, or a command's option, that sets the interpreter, for messages.

    Attributes:
        description: shapes and names of the app's parameters, notes, its strategy, population, rounds, participants of
            its first round, configuration, version of flwr.
        initial: (d,) float32, the first model.

    Raises:
        ExperimentError: no such interpreter, no flwr in it, or an app that fails or is not supported.
        NotImportedError: code that a file names may not run (`testbed.plugins.classes.importing_classes`).
    """

    def __init__(
        self,
        section: FlowerSection,
        population: int | None,
        seed: int,
        python_option: str = "workload.flower.python",
    ) -> None:
        check_allowed("workload.flower", section.named, "a Flower app is not run here")
        self._section = section
        self._lock = threading.Lock()
        python = section.python or sys.executable
        # One thread, as in all hosts: more threads change the order of sums, and so the last bits.
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        # It is meant for the testbed's interpreter; the app's may have other packages and another version.
        environment.pop("PYTHONPATH", None)
        self._output = None if "TESTBED_DEBUG" in os.environ else tempfile.TemporaryFile()  # noqa: SIM115  # see close
        try:
            self._process = subprocess.Popen(
                [python, "-u", "-c", _BRIDGE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._output,
                env=environment,
                start_new_session=True,  # Ctrl-C reaches only this process; the other ends with its standard input
            )
        except OSError as error:
            raise ExperimentError(
                f"{python_option}: {python}: {error.strerror}; name the interpreter of the app's environment"
            ) from None
        try:
            self.description, self.initial = self._ask(
                {
                    "do": "open",
                    "folder": None if section.app is None else str(section.app.absolute()),
                    "client": section.client,
                    "server": section.server,
                    "run_config": dict(section.run_config),
                    "population": population,
                    "discard_state": section.discard_state,
                    "seed": _derived(seed, "open"),
                    "python_option": python_option,
                }
            )
        except FlowerAppError as error:
            self.close()
            raise ExperimentError(f"workload.flower: {section.named}: {error}") from None
        except BaseException:
            self.close()
            raise
        # All rounds and threads share this array.
        self.initial.setflags(write=False)

    def train(
        self, client: int, model: NDArray[np.float32], round_number: int, seed: int
    ) -> tuple[NDArray[np.float32], int, float]:
        """Train one client.

        Args:
            client: the client.
            model: (d,) float32.
            round_number: the round.
            seed: the experiment's seed.

        Returns:
            the local model, (d,) float32; the client's samples; and the loss that it reports, or NaN.
        """
        place = {"client": client, "round": round_number, "seed": _derived(seed, "train", client, round_number)}
        answer, local = self._ask({"do": "train", "loss": self._section.train_loss, **place}, model)
        return local, int(answer["samples"]), float("nan") if answer["loss"] is None else float(answer["loss"])

    def evaluate(self, client: int, model: NDArray[np.float32], seed: int) -> ClientEvaluation:
        """Return a client's own evaluation of a model, (d,) float32; empty if the app evaluates nothing."""
        place = {"client": client, "round": 1, "seed": _derived(seed, "evaluate", client)}
        names = {"loss": self._section.loss, "accuracy": self._section.accuracy}
        answer, _ = self._ask({"do": "evaluate", "names": names, **place}, model)
        if "reported" not in answer:
            return ClientEvaluation()
        reported = tuple(answer["reported"])
        return ClientEvaluation(
            answer["samples"], answer.get("loss"), answer.get("accuracy"), answer["names"], reported
        )

    def count(self, clients: Sequence[int], seed: int) -> dict[int, int]:
        """Return the samples of some clients, as each reports after training the first model once."""
        return {client: self.train(client, self.initial, 1, seed)[1] for client in clients}

    def close(self) -> None:
        """End the process."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._process.wait()
        if self._output is not None:
            self._output.close()

    def _last_words(self) -> str:
        """Return the exit code of the process and the last line of its output."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        printed = ""
        if self._output is not None:
            self._output.seek(0)
            printed = self._output.read().decode(errors="replace").strip()
        last = f": {printed.splitlines()[-1][:300]}" if printed else ""
        return f" (exit code {self._process.returncode}){last}"

    def _ask(
        self, request: Mapping[str, Any], model: NDArray[np.float32] | None = None
    ) -> tuple[dict[str, Any], NDArray[np.float32]]:
        payload = b"" if model is None else np.ascontiguousarray(model, np.float32).tobytes()
        with self._lock:
            requests, replies = self._process.stdin, self._process.stdout
            assert requests is not None
            assert replies is not None
            answer: dict[str, Any] | None = None
            body = b""
            try:
                write_frame(requests, request, payload)
                # No frame: the process has ended.
                answer, body = read_frame(replies) or (None, b"")
            except (OSError, ValueError):  # the pipe is broken or closed
                answer = None
            except BaseException:  # a signal within a reply, after which the stream is unreadable
                self._process.kill()
                raise
        if answer is None:
            raise FlowerAppError(f"the app's process has ended{self._last_words()}")
        if "unfit" in answer:
            raise ExperimentError(f"workload.flower: {self._section.named}: {answer['unfit']}")
        if "error" in answer:
            raise FlowerAppError(answer["error"])
        return answer, np.frombuffer(body, np.float32)


class FlowerWorkload:
    """A `Workload` with the clients of a Flower app.

    Args:
        section: the experiment's ``workload``, with ``flower``.
        population: the experiment's population.
        seed: the experiment's seed.

    Raises:
        ExperimentError: as `FlowerProcess`, and for an app with clients that keep state between calls.
    """

    def __init__(self, section: WorkloadSection, population: int, seed: int) -> None:
        assert section.flower is not None
        self._section, self._population, self._seed = section, population, seed
        self._process = FlowerProcess(section.flower, population, seed)
        self._evaluation: ClientEvaluation | None = None
        try:
            self._first_samples, self.reports_losses = self._check_stateless()
            if section.flower.evaluate_clients:
                self._evaluation = self._process.evaluate(0, self._process.initial, seed)
        except FlowerAppError as error:
            raise self._failed(error) from None
        self.description = self._process.description
        self.dimension = len(self._process.initial)

    @functools.cached_property
    def sample_counts(self) -> NDArray[np.int64]:
        """(population,) int64 announced samples: ``samples_per_client``, or the clients' reports after one training.

        At most `reports.MOST_COUNTED` clients are trained for this; the others get the largest reported number. An
        update is weighted by the number that the client reports with it.
        """
        if self._section.samples_per_client is not None:
            return np.full(self._population, self._section.samples_per_client, np.int64)
        clients = [client for client in counted_clients(self._population) if client]
        try:
            counts = {0: self._first_samples} | self._process.count(clients, self._seed)
        except FlowerAppError as error:
            raise self._failed(error) from None
        return announced_samples(counts, self._population)

    @property
    def notes(self) -> list[str]:
        lines, strategy = list(self.description["notes"]), self.description["strategy"]
        if strategy not in ("", "FedAvg"):
            lines.append(f"the app's strategy {strategy} does not run; the experiment sets selection and aggregation")
        if self._evaluation is not None:
            lines += evaluation_notes(self._evaluation)
        return [f"workload.flower: {line}" for line in lines]

    def initial_model(self) -> NDArray[np.float32]:
        return np.array(self._process.initial)

    def train(self, client: int, model: NDArray[np.float32], round_number: int) -> LocalUpdate:
        """Train as `Workload.train`; modelled compute charges samples times ``workload.epochs``."""
        local, samples, loss = self._process.train(client, model, round_number, self._seed)
        return LocalUpdate(local - model, samples, loss, samples * self._section.epochs)

    def evaluate(self, model: NDArray[np.float32]) -> Evaluation | None:
        """Return the mean over the evaluations of some clients, weighted by their samples.

        The clients are spread evenly over the population.
        """
        assert self._section.flower is not None
        clients = spread(self._population, self._section.flower.evaluate_clients)
        return mean_evaluation({client: self._process.evaluate(client, model, self._seed) for client in clients})

    def _failed(self, error: FlowerAppError) -> ExperimentError:
        assert self._section.flower is not None
        return ExperimentError(f"workload.flower: {self._section.flower.named}: {error}")

    def _check_stateless(self) -> tuple[int, bool]:
        """Return the samples of client 0, and whether it reports a training loss.

        Raises `ExperimentError` if training depends on earlier trainings.
        """
        first, samples, loss = self._process.train(0, self._process.initial, 1, self._seed)
        self._process.train(self._population - 1, self._process.initial, 1, self._seed)
        # After another client: state in globals would now make a difference.
        again, counted, _ = self._process.train(0, self._process.initial, 1, self._seed)
        if not np.array_equal(first, again, equal_nan=True) or samples != counted:
            assert self._section.flower is not None
            raise ExperimentError(
                f"workload.flower: {self._section.flower.named}: client 0 trains differently the second time, from the "
                "same model and the same seed, so results would depend on the process that trains a client; remove "
                "state in globals or files, and generators that the app seeds by the time"
            )
        return samples, not math.isnan(loss)


def _derived(seed: int, *place: object) -> str:
    """Return 32 bytes in hex to seed all generators of one call, from the experiment's seed, client and round."""
    return hashlib.sha256(json.dumps(["testbed/flower", str(seed), *place]).encode()).hexdigest()
