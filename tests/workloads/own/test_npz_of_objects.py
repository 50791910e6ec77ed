"""A numpy archive with arrays of Python objects is refused in one line."""

from pathlib import Path

import numpy as np
import pytest

import workloads
from testbed.errors import ExperimentError
from testbed.workload.section import WorkloadSection


def test_an_archive_of_objects_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = np.empty(20, object)
    objects[:] = [[1, 2]] * 20
    np.savez(tmp_path / "objects.npz", x=objects, y=np.zeros(20, int))
    (tmp_path / "archived.py").write_text(
        f"import numpy\n\n\ndef load():\n    return numpy.load({str(tmp_path / 'objects.npz')!r})\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    section = WorkloadSection(dataset="archived:load", model="logistic")
    with pytest.raises(ExperimentError) as caught:
        workloads.build(section, 4, 1)
    (line,) = str(caught.value).splitlines()
    assert line.startswith("workload.dataset: archived:load gave an .npz with arrays of Python objects")
