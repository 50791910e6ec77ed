"""How long `testbed compare` takes for many runs: 100 runs of 200 rounds, 20 of 100 clients in each, under secagg.

    python -m benchmarks.compare_runs --out /tmp/compare-runs

Runs are written as finished ones (four protocols, five latencies, five seeds), not run; a folder that has them already
is taken as it is. Timed are the overhead table with everything to be computed, and once more with the searches for the
weak multi-round privacy kept beside the runs. The floor is reading the same tables with pyarrow alone. Target: the
first table at most 20 s on two cores.
"""

import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.comparison.overhead import compare
from analysis.comparison.report import render
from analysis.comparison.time_to_target import targets_beside
from analysis.multi_round.kept import FILE
from benchmarks.report import arguments, emit
from testbed.files import parquet
from testbed.network.exchanges import ANSWERED, DROPPED, OFFLINE, OUTCOMES
from testbed.records import RunDirectory
from testbed.records.arrays import Checkpoint, replacing, write_checkpoint
from testbed.records.schemas import SCHEMAS
from testbed.records.tables import MERGED_UP_TO
from testbed.running import runs_below
from testbed.workload.client_accuracy import CLIENT_ACCURACY

TARGET_S = 20.0
PROTOCOLS = ("random", "lotto-server-centric", "lotto-client-centric", "batch-partition")
LATENCIES_MS = (10.0, 20.0, 50.0, 100.0, 200.0)
STAGES = ("lotto/participants", "lotto/signatures", "train", "secagg/advertise-keys", "secagg/share-keys",
          "secagg/masked-input", "secagg/consistency", "secagg/unmask")  # fmt: skip
POPULATION, PARTICIPANTS = 100, 20
_ROUND_S = 5.0


def write_runs(out: Path, count: int, rounds: int) -> None:
    """The first `count` points of the grid, each a finished run of `rounds` rounds in a folder of its own."""
    grid = list(product(PROTOCOLS, LATENCIES_MS, range(1, 1 + -(-count // (len(PROTOCOLS) * len(LATENCIES_MS))))))
    for protocol, latency_ms, seed in grid[:count]:
        sweep = {"selection.protocol": protocol, "links.latency_ms": latency_ms, "seed": seed}
        label = ",".join(map(str, sweep.values()))
        experiment = {
            "name": "benchmark-compare", "seed": seed, "rounds": rounds, "population": POPULATION,
            "selection": {"protocol": protocol, "participants": PARTICIPANTS}, "aggregation": {"protocol": "secagg"},
            "links": {"down_mbit_s": 44.0, "up_mbit_s": 44.0, "latency_ms": latency_ms},
            "provenance": {"label": label, "sweep": sweep},
        }  # fmt: skip
        _write_run(out / label, experiment, np.random.default_rng([seed, int(latency_ms), *protocol.encode()]))


def _write_run(path: Path, experiment: dict[str, Any], rng: np.random.Generator) -> None:
    RunDirectory.create(path, experiment)
    rounds = experiment["rounds"]
    metadata = {MERGED_UP_TO: str(rounds).encode()}
    for name, columns in _tables(rounds, experiment, rng).items():
        schema = SCHEMAS[name].with_metadata(metadata)
        arrays = [pa.array(columns[field.name]).cast(field.type) for field in schema]
        with replacing(path / f"{name}.parquet") as file:
            parquet.write_table(pa.table(arrays, schema=schema), file)
    counts = np.zeros(POPULATION, np.int64)
    checkpoint = Checkpoint(rounds, _ROUND_S * rounds, np.zeros(650, np.float32), counts, float(rounds))
    write_checkpoint(path, checkpoint, keep_last=False)


def _tables(rounds: int, experiment: dict[str, Any], rng: np.random.Generator) -> dict[str, dict[str, Any]]:
    """Every round: all clients check in, then the participants go through the stages; one in a hundred drops out."""
    per_round = POPULATION + PARTICIPANTS * len(STAGES)
    number = np.arange(1, rounds + 1)
    if experiment["selection"]["protocol"] == "batch-partition":  # batches of 5
        batches = rng.permuted(np.tile(np.arange(POPULATION // 5), (rounds, 1)), axis=1)[:, : PARTICIPANTS // 5]
        chosen = (5 * batches[:, :, None] + np.arange(5)).reshape(rounds, PARTICIPANTS)
    else:
        chosen = rng.permuted(np.tile(np.arange(POPULATION), (rounds, 1)), axis=1)[:, :PARTICIPANTS]
    chosen.sort(axis=1)
    everybody = np.tile(np.arange(POPULATION), (rounds, 1))
    client = np.concatenate([everybody, *[chosen] * len(STAGES)], axis=1)
    stage = np.repeat(["check-in", *STAGES], [POPULATION, *[PARTICIPANTS] * len(STAGES)])
    begins = np.linspace(0.0, 0.9 * _ROUND_S, len(STAGES) + 1).repeat([POPULATION, *[PARTICIPANTS] * len(STAGES)])
    sent = _ROUND_S * (number[:, None] - 1) + begins
    outcome = np.where(client % 50 == number[:, None] % 50, OFFLINE, ANSWERED)
    outcome[:, -PARTICIPANTS:] = np.where(rng.random(chosen.shape) < 0.01, DROPPED, ANSWERED)
    delay = experiment["links"]["latency_ms"] / 500 + rng.uniform(0.01, 0.3, sent.shape)
    received = np.where(outcome == ANSWERED, sent + delay, np.nan)
    size = rounds * per_round
    nothing, zeros = np.zeros(size, np.int64), np.zeros(rounds, np.int64)
    took = _ROUND_S * rng.uniform(0.95, 1.0, rounds)
    return {
        "exchanges": {
            "round": np.repeat(number, per_round), "stage": np.tile(stage, rounds), "client": client.ravel(),
            "sent_s": sent.ravel(), "received_s": pa.array(received.ravel(), from_pandas=True),
            "bytes_down": rng.integers(20, 5000, size), "bytes_up": rng.integers(8, 9000, size),
            "transport_down": nothing, "transport_up": nothing, "pki_bytes_down": nothing, "pki_bytes_up": nothing,
            "compute_s": np.zeros(size), "outcome": np.asarray(OUTCOMES)[outcome.ravel()],
            "as_participant": np.tile(stage != "check-in", rounds),
        },
        "participation": {
            "round": np.repeat(number, PARTICIPANTS), "client": chosen.ravel(),
            "survived": np.ones(chosen.size, bool), "dishonest": np.zeros(chosen.size, bool),
        },
        "events": {"round": zeros[:0], "stage": [], "party": [], "kind": [], "detail": []},
        "rounds": {
            "round": number, "outcome": ["completed"] * rounds, "reason": [""] * rounds,
            "started_s": _ROUND_S * (number - 1), "ended_s": _ROUND_S * (number - 1) + took,
            "server_compute_s": np.full(rounds, 0.25), "server_work": [None] * rounds, "behind_s": np.zeros(rounds),
            "population": zeros + POPULATION, "candidates": zeros + PARTICIPANTS, "participants": zeros + PARTICIPANTS,
            "survivors": zeros + PARTICIPANTS, "bytes_down": zeros, "bytes_up": zeros, "beacon_bytes_down": zeros,
            "beacon_bytes_up": zeros, "accuracy": 0.95 - 0.8 * np.exp(-number / 40) + rng.normal(0, 0.01, rounds),
            "loss": np.exp(-number / 40), "recalls": [None] * rounds, "metrics": [None] * rounds,
            **dict.fromkeys(("attack_success", *CLIENT_ACCURACY), [None] * rounds),
        },
    }  # fmt: skip


def _table_s(out: Path) -> float:
    """Seconds for finding the runs, the frame, and the text."""
    began = time.perf_counter()
    runs = runs_below([out])
    reached, _ = targets_beside(runs)
    render(compare(runs), "text", reached)
    return time.perf_counter() - began


def main() -> None:
    """Run the benchmark from the command line."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--out", type=Path, help="where the runs are, or are written; default: a temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out: Path = options.out or Path(folder)
        if not list(out.glob("*/experiment.yaml")):
            write_runs(out, options.runs, options.rounds)
        for kept in out.glob(f"*/{FILE}"):
            kept.unlink()
        first, again = _table_s(out), _table_s(out)
        began = time.perf_counter()
        for file in out.glob("*/*.parquet"):
            pq.read_table(file)
        floor = time.perf_counter() - began
    result = {
        "runs": options.runs, "rounds": options.rounds, "seconds": first, "seconds_again": again,
        "floor_seconds": floor, "ratio": first / floor, "target_seconds": TARGET_S,
    }  # fmt: skip
    emit(result, [], options.format == "json")


if __name__ == "__main__":
    main()
