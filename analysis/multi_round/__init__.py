"""Leakage over many rounds: privacy, fairness and cardinality of a participation matrix.

The metrics are those of Multi-RoundSecAgg (So et al., Securing Secure Aggregation, arXiv 2106.03328, sections 3.2 and
6). P is `(rounds, clients)`, 1 where a client's update is in a round's sum; a round without a sum is a row of zeros. In
the worst case the clients' updates x do not change, and a server that knows Px also knows (P^T z)^T x for every z. A
*reachable combination* is a vector P^T z other than 0.

The weak privacy is a minimum over infinitely many z, and NP-hard in general. A value that is reported as attained is
attained exactly, by integers z (`row_spaces`). A lower bound names its proof:

- "smallest class": every combination contains a class of clients with identical columns;
- "dependent columns": all small sets of classes were tried (`dependent_columns`);
- "code modulo 2", "code modulo 3": the integer vectors of the row space have no lighter word there (`small_codes`);
- "mixed integer program": the solver's dual bound (`mixed_integer`; computed in floating point, so proved up to the
  solver's tolerance of 1e-6 on a whole number).

`bound_search` decides which method is applied to which round. `simulation` makes participation matrices without a
federation.
"""

from analysis.multi_round.over_rounds import OverRounds, WeakPrivacy, over_rounds, weak_privacy
from analysis.multi_round.participation import aggregation_cardinality, fairness_gap, strong_privacy

__all__ = [
    "OverRounds",
    "WeakPrivacy",
    "aggregation_cardinality",
    "fairness_gap",
    "over_rounds",
    "strong_privacy",
    "weak_privacy",
]
