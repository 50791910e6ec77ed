"""Services of the packages above `testbed`: entry points of the group ``sortition_testbed.services``.

The testbed runs federations; training, hosts on Ray and tables of results are in other packages. A service is an
object that the testbed imports by name when needed; its type is declared at the call.
"""

from typing import Any

from testbed.plugins.entry_points import own_object

GROUP = "sortition_testbed.services"


def service(name: str) -> Any:
    """Import the object that is registered under a name, e.g. ``workload.build``.

    Raises:
        InstallationError: the installed metadata are older than the code and lack the name.
        ModuleNotFoundError: the service needs an extra that is not installed.
    """
    return own_object(GROUP, name)
