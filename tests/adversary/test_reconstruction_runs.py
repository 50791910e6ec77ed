"""The attacks from an experiment file: with participants chosen by the server, and with Lotto."""

from pathlib import Path
from typing import Any

import pytest

from testbed.experiment import load
from testbed.records import RunRecords
from testbed.running import run_all
from tests.repository import ROOT

EXAMPLE = ROOT / "examples" / "reconstruction.yaml"
QUICK = ["rounds=2", "cluster.network=in-process", "workload.model=logistic"]


def attacks(out: Path, *overrides: str) -> list[tuple[Any, list[str]]]:
    """Return each point's records, and the outcomes of its attacks on secure aggregation."""
    experiment = load(EXAMPLE, [*QUICK, *overrides])
    found = []
    for path in run_all(experiment, out, where="example"):
        run = RunRecords(path)
        told = run.events.loc[run.events["kind"] == "attack", "detail"]
        found.append((run, [detail for detail in told if "shares" in detail or "failed" in detail]))
    return found


def test_server_choice_breaks_both_variants(tmp_path: Path) -> None:
    for run, details in attacks(tmp_path / "run"):
        assert len(details) == 2
        assert all(detail.startswith("contradict-dropouts: victim ") for detail in details)
        assert all("9 of 7 needed shares of the mask key" in detail for detail in details)
        assert all("; reconstructed, weight 1" in detail for detail in details)
        assert run.rounds["outcome"].tolist() == ["completed"] * 2
        assert run.rounds["survivors"].tolist() == [10, 10]
        assert not (run.events["kind"] == "refusal").any()


@pytest.mark.parametrize("selection", ["lotto-client-centric", "lotto-server-centric"])
def test_lotto_resists_with_the_same_population(tmp_path: Path, selection: str) -> None:
    server = "adversary.server=[keep-dishonest-candidates, contradict-dropouts]"
    for run, details in attacks(tmp_path / "run", f"selection.protocol={selection}", server, "aggregation.threshold=9"):
        completed = run.participation.groupby("round")["dishonest"].sum()
        assert (completed < 8).all()  # 2t - s
        assert details
        assert all("; failed: " in detail for detail in details)


@pytest.mark.parametrize("attack", ["shrink-the-sum", "split-the-sharing"])
def test_signatures_prevent_small_sums(tmp_path: Path, attack: str) -> None:
    server = f"adversary.server=[{attack}]"
    (unsigned, had), (signed, not_had) = sorted(
        attacks(tmp_path / "run", server, "adversary.dishonest=0"),
        key=lambda one: one[0].experiment["aggregation"]["consistency"],
    )
    assert all(f"{attack}: sum over 6 of 10 honest survivors" in detail for detail in had)
    assert all("; reconstructed, " in detail for detail in had)
    assert unsigned.rounds["survivors"].tolist() == [6, 6]
    assert all("; failed: " in detail for detail in not_had)
    assert signed.rounds["outcome"].tolist() == ["aborted"] * 2
