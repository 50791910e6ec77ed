"""Rounds that did not complete say why, wherever a run is looked at."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.faulty_code import Learning

Call = Callable[..., Any]
Written = Callable[..., Path]

AWAY = {"model": "bernoulli", "unavailable": 0.6}
SECAGG = {"protocol": "secagg", "threshold": 4}


def test_reasons_are_summed_up_in_run_status_compare_and_summary(call: Call, written: Written, tmp_path: Path) -> None:
    dropping = {"model": "always", "dropout": {"rate": 0.3, "stage": "secagg/masked-input"}}
    sweep = {"availability": [AWAY, dropping]}
    file, out = written(rounds=6, aggregation=SECAGG, availability={}, sweep=sweep), tmp_path / "out"
    ran = call("run", file, "--out", out)
    assert ran.code == 0, ran.err
    texts, names = [], set()
    for path in sorted(out.glob("*/summary.json")):
        summary = json.loads(path.read_text())
        texts.append(summary["reasons"])
        counts = {key.removeprefix("reasons."): n for key, n in summary.items() if key.startswith("reasons.")}
        assert sum(counts.values()) == summary["rounds_aborted"] + summary["rounds_skipped"] > 0
        names |= set(counts)
        assert all(f"{n} x {name}" in summary["reasons"] for name, n in counts.items())
    assert names == {"too-few-available", "below-threshold"}
    for text in texts:
        assert text in ran.err
        assert text in call("status", out).out
    for table in (ran.out, *(call("compare", out, "--format", format).out for format in ("text", "markdown"))):
        assert all(name in table for name in names)  # in the notes or, of frequent ends, in the findings
    rows = json.loads(call("compare", out, "--format", "json").out)["rows"]
    assert sorted(row["reasons"] for row in rows) == sorted(texts)
    assert "too-few-available" in call("compare", out, "--format", "latex").out


class Misshapen(Learning):
    """One client's updates are one element too long."""

    def train(self, client: int, model: Any, round_number: int) -> Any:
        update = super().train(client, model, round_number)
        return replace(update, delta=np.append(update.delta, 0).astype(np.float32)) if client == 2 else update


def test_refusals_are_told_where_nobody_was_to_be_dishonest(call: Call, written: Written, tmp_path: Path) -> None:
    workload = {"dataset": f"{__name__}:Misshapen", "evaluate_every": 2}
    everybody = {"protocol": "random", "participants": 5}
    file, out = written(population=5, rounds=3, workload=workload, selection=everybody), tmp_path / "out"
    ran = call("run", file, "--out", out)
    assert ran.code == 0, ran.err
    text = json.loads((out / "summary.json").read_text())["unexpected_refusals"]
    assert re.fullmatch(r"(\d) refusals by clients: \1 x train\.dimension-mismatch", text)
    assert text in ran.err
    assert text in " ".join(ran.out.split())
    assert text in " ".join(call("compare", out, "--format", "markdown").out.split())


class Diverging(Learning):
    """No client's update is finite."""

    def train(self, client: int, model: Any, round_number: int) -> Any:
        return replace(super().train(client, model, round_number), delta=np.full(self.dimension, np.nan, np.float32))


def test_training_that_diverges_is_told_as_such_and_ends_with_a_code(
    call: Call, written: Written, tmp_path: Path
) -> None:
    """It was told as a threshold that was not met and as refusals without a dishonest client, with exit code 0."""
    workload = {"dataset": f"{__name__}:Diverging", "learning_rate": 0.7}
    everybody = {"protocol": "random", "participants": 5}
    file, out = written(population=5, rounds=2, workload=workload, selection=everybody), tmp_path / "out"
    ran = call("run", file, "--out", out)
    assert ran.code == 4
    text = "5 of 5 clients had an update that is not finite in rounds 1 to 2; lower the learning rate "
    text += "(workload.learning_rate is 0.7)"
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["diverged"], summary["unexpected_refusals"], summary["rounds_completed"]) == (text, None, 0)
    assert f"no round completed: {text}" in " ".join(ran.err.split())
    assert "no adversary" not in ran.err.lower()
    (finding,) = json.loads(call("compare", out, "--format", "json").out)["findings"]
    assert finding["code"] == "not-finite"
    assert "5 of 5 clients" in finding["text"]
    assert "0.7" in finding["text"]
    assert finding["keys"][0] == "workload.learning_rate"
    compared = " ".join(call("compare", out, "--format", "markdown").out.split())
    assert finding["text"] in compared
    assert compared.count("not finite") == 1
    assert "there were refusals" not in compared
    assert call("run", file, "--out", out, "--resume", "--quiet").code == 4


def test_the_code_is_4_only_where_no_run_has_a_completed_round(call: Call, written: Written, tmp_path: Path) -> None:
    away = {"model": "bernoulli", "unavailable": 1.0}
    file = written(rounds=2, aggregation=SECAGG, availability=away)
    ran = call("run", file, "--out", tmp_path / "away", "--quiet")
    assert ran.code == 4
    assert "no round completed: 2 " in ran.err
    assert "too-few-available" in ran.err
    swept = ["--set", "sweep={availability.unavailable: [0.0, 1.0]}"]
    some = call("run", file, "--out", tmp_path / "some", "--quiet", *swept)
    assert some.code == 0, some.err
    assert "note: no round completed in 1 of 2 runs" in some.err
    adversary = ["--set", "adversary.server=shrink-the-sum"]
    assert call("run", file, "--out", tmp_path / "attacked", "--quiet", *adversary).code == 0
    assert "note: no round completed in 1 of 1 runs" in call("run", file, "--out", tmp_path / "noted", *adversary).err


def test_an_adversary_without_a_misbehaviour_excuses_no_run(call: Call, written: Written, tmp_path: Path) -> None:
    """Such a run ended with code 0, and nothing was said."""
    file = written(rounds=2, aggregation=SECAGG, availability={"model": "bernoulli", "unavailable": 1.0})
    alone = call("run", file, "--out", tmp_path / "alone", "--quiet", "--set", "adversary.dishonest=0")
    assert alone.code == 4
    assert "no round completed: 2 " in alone.err
    points = [{"dishonest": 0}, {"dishonest": 1, "clients": ["deal-inconsistent-shares"]}]
    both = call(
        "run", file, "--out", tmp_path / "both", "--quiet", "--set", f"sweep={json.dumps({'adversary': points})}"
    )
    assert both.code == 0, both.err
    assert "note: no round completed in 2 of 2 runs" in both.err
