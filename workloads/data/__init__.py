"""Data sets, one module each, with its generated stand-in: whoever adds one adds a file here and nothing elsewhere.

Every module of this package declares ``SPECS``, a tuple of `Dataset`: the keys that an experiment may set, from
which all checks of the ``workload`` section derive, and the function that loads it. The modules are imported whenever
an experiment is checked, on machines without torch too: heavy packages are imported where they are used.
The parts that data sets share are in `workloads.data.clients`.
"""

import pkgutil
from functools import cache
from importlib import import_module

from workloads.data.clients.contract import Dataset


@cache
def specs() -> tuple[Dataset, ...]:
    """All that the modules of this package declare, in the order of their names."""
    names = [module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg]
    declared = [spec for name in names for spec in import_module(f"{__name__}.{name}").SPECS]
    return tuple(sorted(declared, key=lambda spec: spec.name))
