"""One thread for arithmetic in every process of a run: the order of a sum's terms, and so its last bits, depends on it.

Torch splits long sums among its threads, and so does the BLAS under NumPy with products of matrices. Hosts share the
cores among processes anyway. Whatever learns, built in or the user's own, is built after `one_thread` was called: in
the hosts, on the coordinator, and in a run without Ray. The same experiment gives the same bits in all of them.
"""

import os
import sys

from threadpoolctl import threadpool_limits

_READ_WHEN_LOADED = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def one_thread() -> None:
    """Let torch, BLAS and OpenMP work in one thread in this process, those that are loaded later too.

    Code that asks for more threads afterwards gets them; then it should do so everywhere.
    """
    for name in _READ_WHEN_LOADED:
        os.environ[name] = "1"
    threadpool_limits(1)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
