"""What happened in a run, as a schedule that lets it happen again under another protocol."""

import numpy as np

from testbed.emulation.traces.schedule import DROPPED, OFFLINE, PARTICIPANT, Schedule
from testbed.records import RunRecords


def record(run: RunRecords) -> Schedule:
    """Who took part in which round, and who was offline or dropped out, at which stage.

    What counts is a client's first stage of a round in which it was offline or dropped out. A client that was away
    already when it was first asked, and did not take part, has no stage: it was away for the round, whatever stages
    another protocol has. Answers that came too late, and refusals, are the protocol's doing and not on the schedule.

    Args:
        run: the records, also those of a run that has not ended: its finished rounds. Raises `RunError` when
            they are damaged.
    """
    exchanges, participation = run.exchanges, run.participation
    asked_first = ~exchanges.duplicated(["round", "client"])  # rows are in the order in which the stages began
    fates = exchanges.assign(asked_first=asked_first)[exchanges["outcome"].isin(["offline", "dropped"])]
    fates = fates.drop_duplicates(["round", "client"])
    number = np.concatenate([participation["round"], fates["round"]]).astype(np.int64)
    client = np.concatenate([participation["client"], fates["client"]]).astype(np.int64)
    key = number * (client.max(initial=0) + 1) + client
    participants = len(participation)
    took_part = np.isin(key[participants:], key[:participants])
    offline = (fates["outcome"] == "offline").to_numpy()
    throughout = offline & fates["asked_first"].to_numpy() & ~took_part
    names, named = np.unique(fates["stage"].astype(str).to_numpy(object), return_inverse=True)
    stage = np.concatenate([np.zeros(participants), np.where(throughout, 0, named + 1)]).astype(np.int16)
    fate = np.concatenate([np.full(participants, PARTICIPANT), np.where(offline, OFFLINE, DROPPED)]).astype(np.int8)
    order = np.lexsort((fate != PARTICIPANT, client, number))
    stages = ("", *map(str, names))
    return Schedule(number[order], client[order], stage[order], fate[order], stages, str(run.path))
