"""Files as LEAF's own scripts write them, from a few users of anybody's."""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Users = Mapping[str, tuple[list[Any], list[Any]]]


def as_leaf(users: Users, hierarchies: list[str] | None = None) -> dict[str, Any]:
    """What a data set's ``data_to_json.py`` and the like write, in the order in which they do."""
    return {
        "users": list(users),
        **({} if hierarchies is None else {"hierarchies": hierarchies}),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()},
    }


def write_all(data: Path, users: Users, *, hierarchies: list[str] | None = None) -> Path:
    """``all_data``, from which the others are made."""
    folder = data / "all_data"
    folder.mkdir(parents=True)
    (folder / "all_data.json").write_text(json.dumps(as_leaf(users, hierarchies)))
    return folder


def split_by_sample(data: Path, users: Users, share: float = 0.9, *, hierarchies: list[str] | None = None) -> None:
    """``utils/split_data.py --by_sample``: users with one sample lose their place, and leave empty lists behind."""
    kept: list[str] = []
    parts: dict[str, dict[str, Any]] = {"train": {}, "test": {}}
    draw = random.Random(1)  # noqa: S311 as there
    for user, (x, y) in users.items():
        for part in parts.values():
            part[user] = {"x": [], "y": []}
        if len(y) < 2:
            continue
        kept.append(user)
        first = 1 if len(y) == 2 else max(1, int(share * len(y)))
        chosen = set(draw.sample(range(len(y)), first))
        for number in range(len(y)):
            part = parts["train" if number in chosen else "test"][user]
            part["x"].append(x[number])
            part["y"].append(y[number])
    for name, part in parts.items():
        written = {
            "users": kept,
            "num_samples": [len(part[user]["y"]) for user in kept],
            "user_data": part,
            **({} if hierarchies is None else {"hierarchies": hierarchies}),
        }
        _write(data, name, written)


def split_by_user(data: Path, users: Users, share: float = 0.9, *, hierarchies: list[str] | None = None) -> None:
    """``utils/split_data.py --by_user``: nobody is in both parts."""
    names = list(users)
    chosen = set(random.Random(1).sample(names, int(share * len(names))))  # noqa: S311 as there
    for part, of in (
        ("train", [name for name in names if name in chosen]),
        ("test", [n for n in names if n not in chosen]),
    ):
        some = None if hierarchies is None else [hierarchies[names.index(name)] for name in of]
        _write(data, part, as_leaf({name: users[name] for name in of}, some))


def _write(data: Path, part: str, content: dict[str, Any]) -> None:
    (data / part).mkdir(parents=True, exist_ok=True)
    (data / part / f"all_data_niid_05_keep_0_{part}_9.json").write_text(json.dumps(content))


def changed(file: Path, user: str, **parts: Any) -> None:
    """Damage one user's data."""
    content = json.loads(file.read_text())
    content["user_data"][user].update(parts)
    file.write_text(json.dumps(content))
