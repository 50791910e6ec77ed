"""`examples/crafted-models.yaml` and its claims: refused attacks, and the content that the others reveal."""

from pathlib import Path

from analysis.attacks.other_models import other_models
from analysis.attacks.outcomes import adversaries
from testbed.experiment import load
from testbed.records import RunRecords
from testbed.running import run_all
from tests.repository import ROOT

EXAMPLE = ROOT / "examples" / "crafted-models.yaml"


def test_binding_ends_the_one_attack_and_not_the_other(tmp_path: Path) -> None:
    experiment = load(EXAMPLE, ["rounds=1"])
    fewer = experiment.model_copy(update={"sweep": {**experiment.sweep, "selection.participants": [2, 10]}})
    runs = [RunRecords(path) for path in run_all(fewer, tmp_path / "run", where="example")]
    table = other_models(runs).set_index(["attack", "binding"]).sort_index()
    refused = table.loc[("send-different-models", "signed")]
    assert refused["completed"].tolist() == [0, 0]
    assert refused["refused_by"].tolist() == [["secagg.other-keys-or-training"]] * 2
    had = table.loc[("send-different-models", "none")]
    assert had["recovered"].tolist() == had["of"].tolist() == [8970, 8970]
    for binding in ("signed", "none"):
        crafted = table.loc[("send-crafted-model", binding)].sort_values("clients")
        assert crafted["clients"].tolist() == [2, 10]
        assert (crafted["recovered"] >= 10).all()
    checks = adversaries(runs).set_index("label")["checks"]
    assert sum(bool(found) for found in checks) == 2


def test_from_one_update_most_of_its_samples_are_had(tmp_path: Path) -> None:
    """The command in its head."""
    overrides = [
        "rounds=1", "sweep={}", "aggregation={protocol: plain}", "selection.participants=1",
        "adversary.server=send-crafted-model",
    ]  # fmt: skip
    (path,) = run_all(load(EXAMPLE, overrides), tmp_path / "run", where="example")
    (row,) = other_models([RunRecords(path)]).to_dict(orient="records")
    assert row["clients"] == 1
    assert row["recovered"] > row["of"] / 2
