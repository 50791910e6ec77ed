"""Write the tables of docs/explanation/threat-*.md.

    python -m tests.docs.threat_model              # from the recorded surveys
    python -m tests.docs.threat_model --survey     # runs all surveys first, and records them

``threat_model.json`` has the rows of one ``testbed attack survey`` for each experiment. The tables on the pages are
between two comments and contain all of these rows: a misbehaviour's rows with the same outcome are one line.
"""

import argparse
import contextlib
import io
import json
import re
from collections.abc import Iterator
from typing import Any

from testbed.cli import main
from tests.repository import ROOT

PAGES = ROOT / "docs" / "explanation"
RECORDS = ROOT / "tests" / "docs" / "threat_model.json"
EXPERIMENT = "examples/threats.yaml"
_TABLE = re.compile(r"<!-- threats: (?P<name>[\w-]+) -->\n.*?<!-- end -->\n", re.DOTALL)

Rows = list[dict[str, Any]]
_SERVER_SELECTS = ["selection={protocol: random}", "adversary={server: []}"]
_TEN_OTHERS = "adversary.dishonest=[0, 9, 18, 27, 36, 45, 54, 63, 72, 81]"

# Name of each experiment, and its changes to EXPERIMENT.
EXPERIMENTS: dict[str, list[str]] = {
    "random": ["selection={protocol: random}", "adversary={server: [{prefer-dishonest: {honest: 1}}]}"],
    "lightsecagg": [*_SERVER_SELECTS, "aggregation={protocol: lightsecagg, threshold: 5, max_colluders: 2}"],
    "batch-partition": [
        "selection={protocol: batch-partition, privacy: 5}",
        "adversary={server: []}",
        "adversary.dishonest=0.1",
    ],
    "batch-partition, announced": [
        "selection={protocol: batch-partition, privacy: 5, membership: announced}",
        "adversary={server: []}",
        "adversary.dishonest=0.1",
    ],
    "batch-partition, pinned": [
        "selection={protocol: batch-partition, privacy: 5, membership: pinned}",
        "adversary={server: []}",
        "adversary.dishonest=0.1",
    ],
    "client-centric": [],
    "server-centric": ["selection.protocol=lotto-server-centric"],
    "client-centric, beacon": ["selection.round_beacon=public"],
    "server-centric, beacon": ["selection.protocol=lotto-server-centric", "selection.round_beacon=public"],
    "client-centric, secagg-plus": ["aggregation={protocol: secagg-plus, threshold: null}"],
    "verifiable-batch-partition": [
        "selection={protocol: verifiable-batch-partition, privacy: 5, beacon: null}",
        "adversary.dishonest=[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]",
    ],
    "noise": ["aggregation={weights: equal, noise: {mechanism: skellam, noise_multiplier: 1}}"],
    "no defences": ["selection.max_round_gap=none", "aggregation.model_binding=none"],
    "flamingo": [
        "selection={protocol: random}",
        "aggregation=null",
        "aggregation={protocol: flamingo, dropouts: 0.3, committee: {size: 20, serves_rounds: 4}}",
        "availability={dropout: {rate: 0.1, stage: flamingo/report}}",
        "adversary={server: []}",
        "adversary.dishonest=0.1",
    ],
    "one-shot": [
        "selection={protocol: random}",
        "aggregation=null",
        "aggregation={protocol: one-shot, committee: {selection: lotto-client-centric, size: 20, serves_rounds: 4}}",
        "adversary={server: []}",
        "adversary.dishonest=0.1",
    ],
    "e-seafl": [
        "selection={protocol: random}",
        "aggregation=null",
        "aggregation={protocol: e-seafl, assisting_nodes: [99, 0, 9]}",
        "adversary={server: []}",
        _TEN_OTHERS,
    ],
    "pine": [
        "selection={protocol: random}",
        "aggregation=null",
        "aggregation={protocol: pine, helper: 99, norm_bound: 10}",
        "adversary={server: []}",
        _TEN_OTHERS,
    ],
    "min-separation": [
        "selection=null",
        "selection={protocol: min-separation, participants: 10, separation: 5}",
        "adversary={server: []}",
        "adversary.dishonest=0.1",
    ],
}
# With noise the lists and the survivors are the same as without; these misbehaviours may differ.
ONLY = {
    # The other misbehaviours act as in batch-partition.
    "batch-partition, announced": ["rebatch"],
    "batch-partition, pinned": ["rebatch"],
    "noise": ["skip-noise", "send-different-models", "send-crafted-model", "deal-inconsistent-shares"],
}
LOTTO = (
    "client-centric",
    "server-centric",
    "client-centric, beacon",
    "server-centric, beacon",
    "client-centric, secagg-plus",
    "no defences",
)

MOST_EXPERIMENTS = 10  # from this number on, a table says "all" instead of their names

# The misbehaviours of each page.
FAMILIES: dict[str, dict[str, str]] = {
    "selection": {
        "prefer-dishonest": "selects its own clients first",
        "keep-dishonest-candidates": "keeps its own candidates, drops honest ones",
        "reserve-most-selected": "keeps a place for the most selected client",
        "omit-honest-candidates": "omits honest candidates; the list is too short",
        "understate-population": "announces a smaller population to all",
        "tell-different-populations": "announces different populations",
        "refine-out-honest": "drops honest clients in population refinement",
        "reuse-round": "repeats a round with known candidates",
        "grind-round": "searches for a round number after the last round",
        "skip-rounds": "skips to a favourable round",
        "abort-unfavourable-rounds": "ends unfavourable rounds",
        "reselect-early": "selects a client before its turn",
        "forge-output": "forges random numbers for its own clients",
        "copy-output": "copies the number of a candidate",
        "list-twice": "lists one of its own clients twice",
        "split-batch": "omits a member of a batch from the list",
        "rebatch": "selects among other batches in every second round",
        "show-different-lists": "shows two lists, each to half of the clients",
        "parallel-lists": "sums over several lists in one round",
        "forge-signatures": "forges the signature of an honest participant",
        "keep-dishonest-members": "keeps its own committee members, drops honest ones",
        "forge-committee": "claims a committee that was not drawn",
    },
    "aggregation": {
        "contradict-dropouts": "tells some clients that the victim survived, others that it dropped out",
        "shrink-the-sum": "tells each client other survivors",
        "split-the-sharing": "tells clients different sharers",
        "drop-honest": "declares honest clients dropped out, down to the threshold",
        "break-batch": "leaves one member of a batch out of the sum",
        "false-committee-key": "shows a client a false committee key",
        "copy-ciphertext": "has a victim's seed decrypted as that of an accomplice",
        "replay-committee-state": "returns old shares to the committee",
        "label-neighbours-offline": "labels clients offline to isolate a victim",
    },
    "training": {
        "send-different-models": "sends the victim another model than the others",
        "send-crafted-model": "sends everybody a crafted model",
        "inflate-utility": "reports a false loss",
        "scale-update": "multiplies its update",
        "flip-sign": "sends the opposite of its update",
        "little-is-enough": "sends the mean minus z deviations",
        "min-max": "sends the most distant update that stays unnoticed",
        "flip-labels": "trains with wrong labels",
        "backdoor": "trains a trigger",
        "skip-noise": "adds no noise",
        "unbounded-update": "reports an update above the norm bound",
        "wrong-proof": "reports invalid proofs",
    },
    "clients": {
        "claim-candidacy": "claims to be a candidate",
        "wrong-signature": "signs another content than the list",
        "withhold-number": "does not answer, so its batch is no candidate",
        "deal-inconsistent-shares": "deals shares that belong to no secret",
        "seal-unopenable-pieces": "seals pieces that do not open",
        "answer-wrong-sum": "answers with a wrong sum, as a holder, member or node",
        "encrypt-wrong-seeds": "encrypts other seeds than it used",
        "decrypt-wrongly": "answers with false decryptions, as a member",
        "frame-member": "makes an honest member look guilty, with an accomplice",
        "reject-shares": "rejects valid shares, as a member",
        "claim-membership": "claims to be drawn for the committee",
        "withhold-membership": "does not report that it is drawn",
    },
}


def survey_arguments(name: str) -> list[str]:
    """Return the arguments of the survey of an experiment."""
    changes = [argument for change in EXPERIMENTS[name] for argument in ("--set", change)]
    return changes + [argument for only in ONLY.get(name, ()) for argument in ("--only", only)]


def survey(name: str) -> Rows:
    """Run the survey of an experiment; return a row for each misbehaviour."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        arguments = ["attack", "survey", str(ROOT / EXPERIMENT), "--quiet", "--format", "json"]
        code = main([*arguments, *survey_arguments(name)])
    if code:
        raise SystemExit(code)
    rows: Rows = json.loads(printed.getvalue())["rows"]
    return [{key: value for key, value in row.items() if key != "outcome"} for row in rows]


def recorded() -> dict[str, Rows]:
    """Return the recorded surveys by experiment."""
    surveys: dict[str, Rows] = json.loads(RECORDS.read_text())
    return surveys


def record(surveys: dict[str, Rows]) -> str:
    """Return the text of the file of records, with one row per line."""
    experiments = []
    for name, rows in surveys.items():
        lines = ",\n".join(f"    {json.dumps(row, ensure_ascii=False)}" for row in rows)
        experiments.append(f"  {json.dumps(name)}: [\n{lines}\n  ]")
    return "{\n" + ",\n".join(experiments) + "\n}\n"


# -- tables ----------------------------------------------------------------------------------------------------------


def family_table(family: str, surveys: dict[str, Rows]) -> Iterator[str]:
    """Yield the lines of a page's table: one for each misbehaviour and outcome."""
    yield "| Misbehaviour | Action | Experiments | Rounds attacked | Detected | Completed undetected | Outcome |"
    yield "| --- | --- | --- | ---: | ---: | ---: | --- |"
    for name, action in FAMILIES[family].items():
        groups = _by_outcome(name, surveys)
        tried = sum(len(group) for group in groups.values())
        for number, (outcome, group) in enumerate(groups.items()):
            total = {key: sum(row[key] for row in group.values()) for key in _COUNTS}
            recovered = total.pop("recovered")
            text = f"{outcome}; an update recovered in {recovered} rounds" if recovered else outcome
            head = f"`{name}` | {action}" if number == 0 else " | "
            where = f"all {tried}" if len(group) == tried >= MOST_EXPERIMENTS else _names(list(group))
            yield f"| {head} | {where} | {' | '.join(map(str, total.values()))} | {text} |"


def experiments_table(surveys: dict[str, Rows]) -> Iterator[str]:
    """Yield the lines of the table of experiments, with the misbehaviours that nothing stops."""
    everywhere = unstopped_everywhere(surveys)
    yield "| Experiment | Attacks that nothing stops, besides those on training |"
    yield "| --- | --- |"
    for name, rows in surveys.items():
        names = [row["trial"]["name"] for row in rows if row["verdict"] == "not protected"]
        listed = ", ".join(f"`{one}`" for one in names if one not in everywhere)
        none = f"none of the {len(rows)} that are tried" if name in ONLY else "–"
        yield f"| {name} | {listed or none} |"


def unstopped_everywhere(surveys: dict[str, Rows]) -> list[str]:
    """Return the misbehaviours in training that no experiment stops."""
    return [name for name in FAMILIES["training"] if list(_by_outcome(name, surveys)) == [_NOT_PROTECTED]]


def commands(surveys: dict[str, Rows]) -> Iterator[str]:
    """Yield a line for each experiment with its changes to the common file."""
    width = max(map(len, surveys))
    yield "```text"
    for name in surveys:
        changes = survey_arguments(name)
        quoted = " ".join(f"'{one}'" if re.search(r"[\s{}\[\]]", one) else one for one in changes)
        yield f"{name:{width}}  {quoted}".rstrip()
    yield "```"


_NOT_PROTECTED = "**not protected**"
_COUNTS = ("attacked", "refused", "completed", "recovered")


def _by_outcome(name: str, surveys: dict[str, Rows]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return a misbehaviour's rows by outcome and experiment, without experiments in which it did not arise."""
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for experiment, rows in surveys.items():
        for row in rows:
            if row["trial"]["name"] == name and row["verdict"] != "did not arise":
                groups.setdefault(_outcome(row), {})[experiment] = row
    return groups


def _names(experiments: list[str]) -> str:
    """Return the experiments in words; all experiments with Lotto together."""
    if set(LOTTO) <= set(experiments):
        return "; ".join(["Lotto", *(name for name in experiments if name not in LOTTO)])
    return "; ".join(experiments)


def _outcome(row: dict[str, Any]) -> str:
    """Return the check that detects a misbehaviour, the bound, or that there is none."""
    if row["verdict"].startswith("refused"):
        check = row["checks"][0].partition(" at ")[0]
        name = re.match(r"[\w-]+\.[\w.-]+(?=:|$)|[\w.-]+$", check)  # alone, or before a colon and its detail
        named = f"`{name[0]}`" if name else "detected by the honest server"
        if row["verdict"] == "refused":
            return named
        return f"{named}, else {_bound(row)}" if row["limit"] else f"{named}, in part"
    return _bound(row) if row["verdict"] == "bounded" else _NOT_PROTECTED


def _bound(row: dict[str, Any]) -> str:
    """Return the theorem; or, of a protocol that is in no paper, the command."""
    named: str = row["limit"].partition(" (")[0]
    return f"`{named}`" if named.startswith("testbed ") else named


def tables(surveys: dict[str, Rows]) -> dict[str, str]:
    """Return the tables by the names in the pages' comments."""
    lines = {family: family_table(family, surveys) for family in FAMILIES}
    lines |= {"experiments": experiments_table(surveys), "commands": commands(surveys)}
    return {name: "\n".join(parts) for name, parts in lines.items()}


def pages(surveys: dict[str, Rows]) -> dict[str, tuple[str, str]]:
    """Return the text of each page by its name: as it is, and with its tables written again."""
    new = tables(surveys)
    texts = {}
    for path in sorted(PAGES.glob("threat-*.md")):
        text = path.read_text()
        written = _TABLE.sub(lambda match: _block(match["name"], new[match["name"]]), text)
        texts[path.name] = (text, written)
    return texts


def _block(name: str, table: str) -> str:
    return f"<!-- threats: {name} -->\n\n{table}\n\n<!-- end -->\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.docs.threat_model", description="Write the tables.")
    parser.add_argument("--survey", action="store_true", help="run all surveys first, and record them")
    if parser.parse_args().survey:
        RECORDS.write_text(record({name: survey(name) for name in EXPERIMENTS}))
    for page, (_, written) in pages(recorded()).items():
        (PAGES / page).write_text(written)
