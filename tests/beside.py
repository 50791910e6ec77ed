"""Let this environment find another one's packages, after its own: `python beside.py THAT_PYTHON`."""

import subprocess
import sys
import sysconfig
from pathlib import Path

PURELIB = "import sysconfig; print(sysconfig.get_path('purelib'))"
there = subprocess.check_output([sys.argv[1], "-c", PURELIB], text=True)
Path(sysconfig.get_path("purelib"), "beside.pth").write_text(there)
