"""Which question a client of Lotto answers when, in both variants (`testbed.parties.stage_table`).

A round is announced, then its participants are shown one list and the signatures on it (arXiv 2401.02880, section 3.4).
An announcement is answered in every state if its checks hold: a valid one also after one that was refused. In the
server-centric variant the list announces its round, too.

One list, whatever comes of it: a client that signed a second one could be made to agree with peers who hold another.
After one that was refused, or another announcement after a list, it is "over". Signatures on the list that was signed
may be shown again, as long as no other round has been announced.
"""

from testbed.parties.stage_table import Row, StageTable
from testbed.selection.lotto.messages import ListSignatures, ParticipantList

STAGES = StageTable(
    start="new",
    new_round={
        "new": "announced",
        "announced": "announced",
        "signed": "over",
        "over": "over",
    },
    rows={
        ParticipantList: Row(
            after={"announced"},
            then="signed",
            on_refusal="over",
            check="lotto.second-list",
            detail="a list for round {round} was shown before",
            other_round=("lotto.unannounced-round", "a list for round {round}, which was not announced"),
        ),
        ListSignatures: Row(
            after={"signed"},
            then=None,
            check="lotto.no-list",
            detail="signatures for a list that this client has not seen",
        ),
    },
)
