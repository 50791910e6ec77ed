"""tests/hashed_requirements.py, the output of `make hashes`."""

import pytest

from tests.hashed_requirements import hashed
from tests.messages_named import naming


def _item(name: str, version: str, **info: object) -> dict:
    return {"metadata": {"name": name, "version": version}, "download_info": info}


def test_every_package_has_its_version_and_hash_and_the_project_itself_is_left_out() -> None:
    items = [
        _item("PyYAML", "6.0.2", archive_info={"hashes": {"sha256": "ab"}}),
        _item("attrs", "23.2.0", archive_info={"hashes": {"sha256": "cd"}}),
        _item("sortition-testbed", "1.0", dir_info={}),
    ]
    assert hashed({"install": items}) == ["attrs==23.2.0 --hash=sha256:cd", "pyyaml==6.0.2 --hash=sha256:ab"]


def test_a_file_without_a_hash_is_refused() -> None:
    with pytest.raises(ValueError, match=naming("SHA-256", "attrs 23.2.0")):
        hashed({"install": [_item("attrs", "23.2.0", archive_info={})]})
