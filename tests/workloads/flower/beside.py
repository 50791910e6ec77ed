"""Let this environment find what is installed in another one, after its own packages: `python beside.py THAT_PYTHON`."""

import subprocess
import sys
import sysconfig
from pathlib import Path

there = subprocess.check_output(
    [sys.argv[1], "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
)
Path(sysconfig.get_path("purelib"), "beside.pth").write_text(there)
