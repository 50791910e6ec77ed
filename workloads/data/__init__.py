"""Data sets, one module each, with generated stand-ins; a new data set needs a module here and nothing elsewhere.

Every module of this package declares ``SPECS``, a tuple of `Dataset`: the keys that an experiment may set, from which
all checks of the ``workload`` section derive, and the function that loads the data. The modules are imported whenever
an experiment is checked, on machines without torch, too; heavy packages are therefore imported in the functions that
use them. The parts that data sets share are in `workloads.data.clients`.
"""

import pkgutil
from functools import cache
from importlib import import_module

from workloads.data.clients.contract import Dataset


@cache
def specs() -> tuple[Dataset, ...]:
    """Return all declarations of the modules of this package, in the order of their names."""
    names = [module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg]
    declared = [spec for name in names for spec in import_module(f"{__name__}.{name}").SPECS]
    return tuple(sorted(declared, key=lambda spec: spec.name))
