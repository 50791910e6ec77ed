"""Environment of a Flower app: its configuration, its modules, its random generators."""

import importlib
import random
import sys
import tomllib
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np


class Unfit(Exception):
    """The app does something that is not supported; the message has the problem and the remedy."""


def components(folder: Path) -> tuple[str, str, dict[str, Any], int | None]:
    """Return the contents of a Flower app's pyproject.toml.

    Returns:
        the names of its client's and server's app; its configuration; and the number of clients of its simulation, or
        None.
    """
    file = folder / "pyproject.toml"
    try:
        flower = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {}).get("flwr", {})
    except OSError as error:
        raise Unfit(f"{file}: {error.strerror}; name the folder of a Flower app") from None
    except ValueError as error:
        raise Unfit(f"{file}: {error}") from None
    app, federations = flower.get("app", {}), flower.get("federations", {})
    parts = app.get("components", {})
    if "clientapp" not in parts or "serverapp" not in parts:
        raise Unfit(f"{file}: [tool.flwr.app.components] must name both clientapp and serverapp")
    simulation = federations.get(federations.get("default", ""), {}).get("options", {})
    return parts["clientapp"], parts["serverapp"], dict(_flat(app.get("config", {}))), simulation.get("num-supernodes")


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield before + key, value


def attribute(name: str) -> Any:
    """Return the object that ``module:attribute`` names."""
    module, _, inner = name.partition(":")
    try:
        return getattr(importlib.import_module(module), inner)
    except AttributeError:
        raise Unfit(f"module {module} has no {inner}") from None


def identify() -> None:
    """Set the identity of this process's task, for versions of Flower with messages that need it."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:
        return
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1


def seed_generators(seed: str) -> None:
    """Initialise every global generator of the imported libraries with a seed.

    Args:
        seed: 32 bytes, in hex.
    """
    whole = bytes.fromhex(seed)
    random.seed(whole)
    np.random.seed(np.frombuffer(whole, np.uint32))  # noqa: NPY002  # used by the app
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(int.from_bytes(whole[:8], "big"))
    if "tensorflow" in sys.modules:
        # TensorFlow takes seeds of signed 64 bits, so 7 bytes.
        sys.modules["tensorflow"].random.set_seed(int.from_bytes(whole[:7], "big"))


def one_thread() -> None:
    """Limit torch to one thread, so that sums do not depend on the number of cores."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def error_line(error: BaseException) -> str:
    """Return an error's text, and its place in the app."""
    here = str(Path(__file__).parent)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(here)]
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}{where}"
