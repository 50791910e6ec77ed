"""``python -m testbed``: the same as the ``testbed`` command."""

import sys

from testbed.commands import main

if __name__ == "__main__":
    sys.exit(main())
