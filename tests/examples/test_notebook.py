"""`examples/quickstart.ipynb` runs in a real kernel, and prints the outputs that are stored in it."""

import nbformat
from nbclient import NotebookClient

from tests.repository import ROOT

NOTEBOOK = ROOT / "examples" / "quickstart.ipynb"


def _texts(notebook: nbformat.NotebookNode) -> list[str]:
    """Return the outputs of the cells as text: values, tables, errors; figures only by their type."""
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return [output.data["text/plain"] for output in shown if "data" in output]


def test_the_notebook_runs_and_its_tables_are_the_same() -> None:
    stored = nbformat.read(NOTEBOOK, as_version=4)
    executed = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(executed, timeout=240, resources={"metadata": {"path": str(ROOT / "examples")}}).execute()
    assert _texts(executed) == _texts(stored)
    assert any("image/png" in output.get("data", {}) for cell in executed.cells for output in cell.get("outputs", []))
