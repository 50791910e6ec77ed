"""The module of somebody's own can be imported in every test of this folder."""

import sys
from collections.abc import Iterator

import pytest

from tests.workloads.own.mine import MODULE


@pytest.fixture(autouse=True, scope="module")
def _own_modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("own")
    (folder / "mine_to_learn.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield
    sys.modules.pop("mine_to_learn", None)
