"""``mlflow``: a run of an MLflow experiment for each run, in an SQLite store unless another one is named."""

import logging
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from testbed.flattening import flattened
from testbed.running.observers.export import Exporter, Row, identity, numbers, plain
from testbed.running.preparation import PlannedRun

_ID = "testbed.id"
_MOST_PARAMS = 100  # of a batch
_LONGEST = {"key": 250, "value": 500}  # of a parameter, in characters, for every store
_NAME = re.compile(r"[\w\-. :/]{1,250}", re.ASCII)


class MlflowRuns(Exporter):
    """Writes parameters (the flattened experiment), metrics (each round at its step) and tags (provenance).

    Args:
        tracking_uri: the store; default: ``mlflow.db``, SQLite, beside the run's directory.
        experiment: MLflow's experiment; default: the name of ours.
    """

    needs = ("mlflow", "sqlalchemy")

    def __init__(self, tracking_uri: str | None = None, experiment: str | None = None) -> None:
        super().__init__()
        if tracking_uri is not None and urlsplit(tracking_uri).password:
            raise ValueError(
                "tracking_uri: must hold no password: it would stand in the records; MLflow takes it from the "
                "environment (MLFLOW_TRACKING_PASSWORD)"
            )
        self._uri = tracking_uri
        self._experiment = experiment
        self._clients: dict[str, Any] = {}
        self._runs: dict[Path, tuple[Any, str]] = {}

    def opened(self, run: PlannedRun) -> int:
        experiment = plain(run)
        store = run.path.resolve().parent
        client = self._client(self._uri or f"sqlite:///{store / 'mlflow.db'}")
        name = self._experiment or str(experiment["name"])
        group = client.get_experiment_by_name(name)
        where = None if self._uri else (store / "mlartifacts").as_uri()  # not made until something is put there
        experiment_id = group.experiment_id if group else client.create_experiment(name, artifact_location=where)
        # By a tag of ours: MLflow's own ids are not known after the process has died.
        there = client.search_runs([experiment_id], f"tags.`{_ID}` = '{identity(run)}'", max_results=1)
        if there:
            run_id = there[0].info.run_id
            self._runs[run.path] = client, run_id
            client.update_run(run_id, status="RUNNING")
            return max((point.step for point in client.get_metric_history(run_id, "completed")), default=0)
        self._runs[run.path] = client, self._created(client, experiment_id, run, experiment)
        return 0

    def write(self, run: PlannedRun, row: Row) -> None:
        from mlflow.entities import Metric

        client, run_id = self._runs[run.path]
        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, row["round"]) for name, value in numbers(row).items()]
        client.log_batch(run_id, metrics=metrics, synchronous=True)

    def closed(self, run: PlannedRun, summary: Mapping[str, Any] | None) -> None:
        client, run_id = self._runs.pop(run.path)
        client.set_terminated(run_id, "FINISHED" if summary is not None else "KILLED")

    def _client(self, uri: str) -> Any:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it would call out
        from mlflow.tracking import MlflowClient

        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        if uri not in self._clients:
            self._clients[uri] = MlflowClient(tracking_uri=uri)
        return self._clients[uri]

    @staticmethod
    def _created(client: Any, experiment_id: str, run: PlannedRun, experiment: Mapping[str, Any]) -> str:
        from mlflow.entities import Param

        provenance = experiment.get("provenance") or {}
        tags = {_ID: identity(run), "testbed.directory": run.path.name}
        tags |= {f"testbed.{name}": str(provenance[name]) for name in ("git_commit", "started") if provenance.get(name)}
        tags |= {
            f"testbed.version.{name}": str(version) for name, version in (provenance.get("versions") or {}).items()
        }
        tags |= {f"testbed.sweep.{key}": str(value) for key, value in (provenance.get("sweep") or {}).items()}
        tags = {key: value for key, value in tags.items() if _NAME.fullmatch(key)}
        run_id = str(client.create_run(experiment_id, tags=tags, run_name=run.label).info.run_id)
        recorded = {key: value for key, value in experiment.items() if key not in ("provenance", "output")}
        params = [
            Param(key[: _LONGEST["key"]], str(value)[: _LONGEST["value"]])
            for key, value in flattened(recorded)
            if _NAME.fullmatch(key)
        ]
        for at in range(0, len(params), _MOST_PARAMS):
            client.log_batch(run_id, params=params[at : at + _MOST_PARAMS], synchronous=True)
        return run_id
