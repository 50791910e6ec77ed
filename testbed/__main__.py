"""``python -m testbed``: the same as the ``testbed`` command."""

import sys

from testbed.cli import main

if __name__ == "__main__":
    sys.exit(main())
