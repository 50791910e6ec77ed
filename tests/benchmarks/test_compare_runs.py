"""The runs that `benchmarks.compare_runs` writes have every column that a run has, and are compared as runs are."""

from analysis.comparison.overhead import compare
from benchmarks.compare_runs import write_runs
from testbed.records.schemas import SCHEMAS
from testbed.running import runs_below


def test_what_is_written_is_what_a_run_records(tmp_path):
    write_runs(tmp_path, count=2, rounds=3)
    runs = runs_below([tmp_path])
    assert len(runs) == 2
    for run in runs:
        assert list(run.rounds.columns) == SCHEMAS["rounds"].names
        assert run.rounds["outcome"].eq("completed").tolist() == [True] * 3
    assert len(compare(runs)) == 2
