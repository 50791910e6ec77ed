"""What limits a misbehaviour that honest parties do not see: the theorem, and the command that computes it.

A server that only chooses within what the protocol leaves to it is seen by nobody. Where a theorem says how far that
takes it, the name is here; where nothing does, it is not protected.
"""

from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.experiment.schema import Experiment

_LOTTO = ("lotto-client-centric", "lotto-server-centric")
_BATCHES = "verifiable-batch-partition"
_CHOOSING = {
    "keep-dishonest-candidates",
    "omit-honest-candidates",
    "understate-population",
    "refine-out-honest",
    "tell-different-populations",
}
_RECONSTRUCTING = {"contradict-dropouts", "shrink-the-sum", "split-the-sharing"}


def limit(name: str, experiment: Experiment) -> str:
    """What bounds the misbehaviour `name` under the experiment's protocols; empty: nothing that is computed here."""
    selection = experiment.selection.protocol
    sums = experiment.aggregation
    if name in _RECONSTRUCTING and not (isinstance(sums, SecAggParameters) and sums.consistency == "signed"):
        return ""  # two of them need no accomplice then (docs/explanation/reconstruction.md)
    if selection in _LOTTO:
        if name in _CHOOSING:
            return "Lotto, Theorem 2 (testbed bound lotto)"
        if name == "reserve-most-selected":
            return "Lotto, Corollaries 2 and 3 (testbed bound lotto-dp)"
        if name in _RECONSTRUCTING:
            return "Lotto, Corollary 1 (testbed bound lotto)"
        if name == "parallel-lists" and selection == "lotto-client-centric":
            return "Lotto, Corollary 2 for several lists (testbed bound lotto-dp --parallel-lists)"
    if name in ("skip-rounds", "abort-unfavourable-rounds"):
        return "Corollary 1 over all rounds, not those announced (testbed bound lotto --rounds)"
    if selection == _BATCHES and name in {*_CHOOSING, *_RECONSTRUCTING, "reserve-most-selected"}:
        return "testbed bound verifiable-batch-partition"
    if name == "skip-noise":
        return "the ledger, which counts the noise that was added (testbed privacy)"
    if name == "withhold-number":
        return "its own batch, which does not stand"
    return ""
