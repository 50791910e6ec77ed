"""What a client is worth to training, as Oort measures it: Lai, Zhu, Madhyastha, Chowdhury, Oort: Efficient Federated
Learning via Guided Participant Selection, OSDI 2021, arXiv 2010.06081, section 4.

A client's utility is its data quality |B_i| sqrt(mean Loss(k)^2) (`TrainingReports.quality`), times (T/t_i)^alpha when
its response time t_i exceeds the preferred duration T (equation 2; Lotto's equation 3). All functions are O(n).
"""

import numpy as np

from testbed.arrays import Floats

PENALTY = 2.0  # alpha, as published
ROUND_THRESHOLD = 30.0  # T is this percentile of the response times, as in FedScale

_SHORTEST_S = 1e-4  # as in FedScale: nobody answers faster


def preferred_duration_s(latency_s: Floats, percentile: float) -> float:
    """T: this percentile of `(m,)` response times in seconds; infinite when there are none, or from 100 on."""
    if not len(latency_s) or percentile >= 100:
        return float("inf")
    rank = min(int(len(latency_s) * percentile / 100), len(latency_s) - 1)
    return float(np.partition(latency_s, rank)[rank])


def system_utility(latency_s: Floats, preferred_s: float, penalty: float) -> Floats:
    """`(m,)` (T/t_i)^alpha where t_i > T, else 1."""
    if preferred_s == np.inf:
        return np.ones_like(latency_s)
    return np.asarray((preferred_s / np.maximum(np.maximum(latency_s, _SHORTEST_S), preferred_s)) ** penalty)


def or_mean(quality: Floats) -> Floats:
    """`(m,)` data qualities, the mean of the known ones in place of NaN; 1 everywhere when none is known."""
    unknown = np.isnan(quality)
    return np.where(unknown, 1.0 if unknown.all() else quality[~unknown].mean(), quality)


def utility(quality: Floats, latency_s: Floats) -> Floats:
    """`(m,)` U_i of clients with these data qualities and response times, with the published alpha and percentile."""
    return quality * system_utility(latency_s, preferred_duration_s(latency_s, ROUND_THRESHOLD), PENALTY)
