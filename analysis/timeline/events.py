"""Trace events, a column at a time: each row becomes the JSON of one event.

The format is Chrome's (Trace Event Format, JSON object form): `M` names tracks, `X` is a slice with a duration, `i` an
instant, `C` a counter. Times are microseconds, here with three decimals.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from analysis.timeline.placed import PARTS, Placed
from testbed.arrays import Ids

SERVER, CLIENTS = 1, 2
_FIRST_CLIENT = 3  # threads: distinct from the numbers of processes, because some viewers keep both in one table
_OUTCOMES_SHOWN = ("silent", "offline", "dropped", "late", "refused")
_BYTES = ("bytes_down", "bytes_up", "transport_down", "transport_up", "pki_bytes_down", "pki_bytes_up")
_EXPLAINED = {"refused": "refusal", "silent": "crash"}
"""Outcomes of exchanges, with the kind of event that gives the reason."""


def tracks(clients: Sequence[int], classes: "pd.Series[str] | None") -> list[str]:
    """Return the names of the server's track and of each client's, in their order.

    Args:
        clients: their numbers.
        classes: by client; None: there are no classes.
    """
    named = [_metadata(SERVER, SERVER, "process_name", name="server")]
    named.append(_metadata(SERVER, SERVER, "process_sort_index", sort_index=0))
    named.append(_metadata(SERVER, SERVER, "thread_name", name="rounds and stages"))
    named.append(_metadata(CLIENTS, CLIENTS, "process_name", name="clients"))
    named.append(_metadata(CLIENTS, CLIENTS, "process_sort_index", sort_index=1))
    for client in clients:
        kind = "" if classes is None else str(classes.get(client, ""))
        name = f"client {client} ({kind})" if kind else f"client {client}"
        named.append(_metadata(CLIENTS, _FIRST_CLIENT + client, "thread_name", name=name))
        named.append(_metadata(CLIENTS, _FIRST_CLIENT + client, "thread_sort_index", sort_index=client))
    return named


def of_server(placed: Placed) -> list[str]:
    """Return a slice for each round, with a slice for each stage in it."""
    made = []
    for row in placed.rounds.to_dict("records"):
        round_columns = (
            "round",
            "outcome",
            "reason",
            "population",
            "candidates",
            "participants",
            "survivors",
            "bytes_down",
        )
        more = ("bytes_up", "beacon_bytes_down", "beacon_bytes_up", "server_compute_s", "behind_s", "accuracy", "loss")
        args = {name: row[name] for name in (*round_columns, *more) if not pd.isna(row[name]) and row[name] != ""}
        made.append(_slice(f"round {row['round']}", "round", row, args))
    for row in placed.stages.to_dict("records"):
        args = {name: row[name] for name in ("round", "asked", "answered", "bytes_down", "bytes_up")}
        if row["by_deadline"]:
            args["derived"] = "end"
        made.append(_slice(row["stage"], "stage", row, args))
    return made


def of_clients(placed: Placed) -> list[pa.Array]:
    """Return a slice for each exchange with a client that was online, with slices of its parts in it."""
    there = (placed.exchanges["outcome"] != "offline").to_numpy()
    rows = placed.exchanges[there]
    outcome, stage = _quoted(rows["outcome"]), _quoted(rows["stage"])
    args: list[Any] = ['{"round":', _text(rows["round"]), ',"outcome":', outcome]
    for name in (*_BYTES, "compute_s", "as_participant"):
        args += [f',"{name}":', _text(rows[name])]
    args += [_where(~rows["complete"], ',"derived":"end"'), "}"]
    made = [_slices(stage, '"exchange"', rows["begin"], rows["end"], rows["client"], args)]
    down, up, pki = (rows[[name for name in _BYTES if name.endswith(way)]] for way in ("down", "up", ""))
    sizes = {
        "question": down[["bytes_down", "transport_down"]],
        "key directory": pki[["pki_bytes_down", "pki_bytes_up"]],
        "answer": up[["bytes_up", "transport_up"]],
    }
    for part in PARTS:
        bounds = placed.parts[part][there]
        if part == "compute":
            is_drawn = (rows["compute_s"] > 0).to_numpy()
            cut = bounds[:, 1] - bounds[:, 0] < np.rint(rows["compute_s"].to_numpy() * 1e9)
            own: list[Any] = ['{"compute_s":', _text(rows["compute_s"][is_drawn])]
            own += [_where(cut[is_drawn], ',"derived":"begin, end"}', ',"derived":"begin"}')]
            category = '"compute"'
        else:
            size = sizes[part]
            is_drawn = (size.sum(axis=1) > 0).to_numpy()
            own = []
            for name in size.columns:
                own += ["," if own else "{", f'"{name}":', _text(size[name][is_drawn])]
            own.append(',"derived":"begin, end"}')
            category = '"transfer"'
        begin, end = bounds[is_drawn].T
        made.append(_slices(json.dumps(part), category, begin, end, rows["client"][is_drawn], own))
    return made


def losses(placed: Placed, events: pd.DataFrame) -> list[pa.Array]:
    """Return an instant for each unanswered exchange, with the reason if an event gives it; see `other_events`.

    Args:
        placed: the rounds.
        events: of these rounds, with `client` (-1: another party) and `explains` (an outcome, or empty).
    """
    rows = placed.exchanges[placed.exchanges["outcome"].isin(_OUTCOMES_SHOWN)]
    why = events[events["explains"] != ""].groupby(["round", "stage", "client", "explains"])["detail"].agg("; ".join)
    keys = [rows["round"], rows["stage"].astype(str), rows["client"], rows["outcome"].astype(str)]
    reasons = why.reindex(pd.MultiIndex.from_arrays(keys)).to_numpy(object) if len(why) else np.full(len(rows), None)
    offline = rows["outcome"] == "offline"
    at = np.where(offline, rows["begin"], rows["end"])
    reason_texts = pa.array(
        ["" if pd.isna(reason) else f',"reason":{json.dumps(reason)}' for reason in reasons], pa.string()
    )
    args = ['{"round":', _text(rows["round"]), ',"stage":', _quoted(rows["stage"]), reason_texts]
    args += [_where(offline | rows["complete"], "}", ',"derived":"time"}')]
    event = ['{"ph":"i","s":"t","name":', _quoted(rows["outcome"]), ',"cat":"loss","ts":', _microseconds(at)]
    return [_objects([*event, *_of_client(rows["client"]), *args, "}"])]


def with_parties(placed: Placed, events: pd.DataFrame) -> pd.DataFrame:
    """Return `events` with the columns `client` and `explains`: the outcome of the client's exchange that it explains.

    Args:
        placed: the rounds.
        events: of these rounds.
    """
    named = events["party"].str.extract(r"^client:(\d{1,9})$")[0]
    client = named.fillna(-1).astype(np.int64)
    kinds = {kind: outcome for outcome, kind in _EXPLAINED.items()}
    explains = events["kind"].map(kinds).fillna("").astype(object)
    exchanges = placed.exchanges[placed.exchanges["outcome"].isin(_EXPLAINED)]
    unanswered = pd.MultiIndex.from_arrays(
        [exchanges["round"], exchanges["stage"].astype(str), exchanges["client"], exchanges["outcome"].astype(str)]
    )
    is_explained = pd.MultiIndex.from_arrays([events["round"], events["stage"], client, explains]).isin(unanswered)
    return events.assign(client=client, explains=explains.where(is_explained, ""))


def other_events(placed: Placed, events: pd.DataFrame) -> list[str]:
    """Return an instant for each event that explains no exchange: on the client's track, otherwise on the server's.

    Events have no recorded time: they appear at the end of their stage, otherwise of their round.

    Args:
        placed: the rounds.
        events: from `with_parties`.
    """
    of_round = placed.rounds.set_index("round")["end"]
    of_stage = placed.stages.groupby(["round", "stage"])["end"].last()
    made = []
    for row in events[events["explains"] == ""].to_dict("records"):
        at = int(of_stage.get((row["round"], row["stage"]), of_round[row["round"]]))
        client = row["client"]
        where = (SERVER, SERVER) if client < 0 else (CLIENTS, _FIRST_CLIENT + client)
        columns = ("round", "stage", "party", "detail")
        args = {name: row[name] for name in columns if row[name] != ""} | {"derived": "time"}
        event = {"ph": "i", "s": "t", "name": row["kind"], "cat": "event", "ts": at / 1000}
        made.append(json.dumps(event | {"pid": where[0], "tid": where[1], "args": args}))
    return made


def counters(placed: Placed) -> list[pa.Array]:
    """Return the bytes in transit, including headers, at each moment at which they change."""
    times, changes = [], []
    for at, (part, way) in enumerate((("question", "down"), ("answer", "up"))):
        size = (placed.exchanges[f"bytes_{way}"] + placed.exchanges[f"transport_{way}"]).to_numpy(np.int64)
        for end, sign in ((0, 1), (1, -1)):
            times.append(placed.parts[part][:, end])
            change = np.zeros((len(size), 2), np.int64)
            change[:, at] = sign * size
            changes.append(change)
    moments, which = np.unique(np.concatenate(times), return_inverse=True)
    total = np.zeros((len(moments), 2), np.int64)
    np.add.at(total, which, np.concatenate(changes))  # `total[which] +=` would count one change per moment
    down, up = total[total.any(axis=1)].cumsum(axis=0).T
    begin = ['{"ph":"C","name":"bytes in flight","cat":"bytes","ts":', _microseconds(moments[total.any(axis=1)])]
    values = [f',"pid":{SERVER},"args":{{"to clients":', _text(down), ',"to the server":', _text(up), "}}"]
    return [_objects(begin + values)]


def _metadata(pid: int, tid: int, kind: str, **args: Any) -> str:
    return json.dumps({"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args})


def _slice(name: str, category: str, row: Mapping[Any, Any], args: dict[str, Any]) -> str:
    event = {"ph": "X", "name": name, "cat": category, "ts": row["begin"] / 1000}
    return json.dumps(
        event | {"dur": (row["end"] - row["begin"]) / 1000, "pid": SERVER, "tid": SERVER, "args": args},
        allow_nan=False,
    )


def _slices(name: Any, category: str, begin: Any, end: Any, client: Any, args: Iterable[Any]) -> pa.Array:
    begin, end = np.asarray(begin), np.asarray(end)
    parts = ['{"ph":"X","name":', name, f',"cat":{category},"ts":', _microseconds(begin)]
    return _objects([*parts, ',"dur":', _microseconds(end - begin), *_of_client(client), *args, "}"])


def _objects(parts: Sequence[Any]) -> pa.Array:
    """Return `(m,)` texts: the columns' values, with constant text between them."""
    return pc.binary_join_element_wise(*(pa.scalar(part) if isinstance(part, str) else part for part in parts), "")


def _text(values: Any) -> pa.Array:
    return pc.cast(pa.array(np.asarray(values)), pa.string())


def _of_client(clients: Any) -> list[Any]:
    return [f',"pid":{CLIENTS},"tid":', _text(np.asarray(clients, np.int64) + _FIRST_CLIENT), ',"args":']


def _microseconds(nanoseconds: Ids) -> pa.Array:
    # By whole numbers: a double of microseconds has no nanoseconds left after some months of virtual time.
    whole, rest = np.divmod(np.asarray(nanoseconds, np.int64), 1000)
    return pc.binary_join_element_wise(_text(whole), pc.utf8_lpad(_text(rest), 3, "0"), ".")


def _quoted(words: "pd.Series[Any]") -> pa.Array:
    """Return words of few kinds as JSON text."""
    codes, kinds = pd.factorize(words.astype(str))  # millions of rows, few words: json.dumps once for each
    return pa.array([json.dumps(str(kind)) for kind in kinds], pa.string()).take(pa.array(codes))


def _where(chosen: "npt.NDArray[np.bool_] | pd.Series[bool]", text: str, otherwise: str = "") -> pa.Array:
    return pc.if_else(pa.array(np.asarray(chosen)), text, otherwise)
