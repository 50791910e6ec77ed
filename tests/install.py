"""Install the checkout with some of its extras into this Python's environment, with uv where there is one, else pip.

    python tests/install.py demo|test|docs

`make` calls this. uv installs in a minute where pip takes five; it comes from the package index like any other package.
uv does not read pip's settings (pip.conf, PIP_INDEX_URL and the like), so they are handed on; with settings that cannot
be handed on, with an index that has no uv, and wherever uv fails, pip installs. UV_... variables come before pip's.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """The packages that one command of `make` installs.

    Attributes:
        extra: the extra of the package.
        content: for the line of progress.
        size: on disk, and how much of that is downloaded.
        minutes: with uv, and with pip, for a nearby package index.
        compiled: whether to compile all modules to byte-code where Python is told not to (PYTHONDONTWRITEBYTECODE):
            hundreds of processes would compile them again each. It takes 40 s of CPU time; else Python compiles
            imported modules only, 6 s for a run.
    """

    extra: str
    content: str
    size: str
    minutes: tuple[str, str]
    compiled: bool = False


PARTS = {
    "demo": Part("all", "the testbed with PyTorch and Ray", "6.4 GB, 2.8 GB to download", ("1 minute", "5 minutes")),
    "test": Part("dev", "the test dependencies", "7 GB in all, 3 GB to download", ("1 minute", "6 minutes"), True),
    "docs": Part("docs", "Sphinx and its theme", "0.2 GB", ("10 seconds", "1 minute")),
}
PIP = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
UV = (sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable)
CONSTRAINTS = ("--constraint", "constraints.txt")

_HANDED_ON = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
    "trusted-host": "UV_INSECURE_HOST",
    "proxy": "ALL_PROXY",
}
_HARMLESS = {"cache-dir", "default-timeout", "disable-pip-version-check", "timeout", "retries", "progress-bar", "quiet"}


def pip_settings() -> dict[str, str]:
    """Return the options that pip's files and variables set for an installation, with their values."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return settings_of(listed)


def settings_of(listed: str) -> dict[str, str]:
    """The same from what ``pip config list`` prints, e.g. ``global.index-url='URL'``."""
    settings = {}
    for section in ("global", "install", ":env:"):  # as pip weighs them
        for line in listed.splitlines():
            name, _, value = line.partition("=")
            if name.startswith(f"{section}."):
                settings[name.removeprefix(f"{section}.")] = " ".join(value.strip().strip("'\"").split("\\n")).strip()
    return settings


def uv_environment(settings: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str] | None:
    """Return the environment in which uv follows pip's settings; None if uv has no variable for one of them.

    Args:
        settings: see `settings_of`.
        environment: this process's; its UV_... variables come first.
    """
    if set(settings) - {*_HANDED_ON, *_HARMLESS}:
        return None
    made = dict(environment)
    for option, variable in _HANDED_ON.items():
        if settings.get(option):
            made.setdefault(variable, settings[option])
    if settings.get("extra-index-url"):
        made.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")  # as pip: the newest of all indexes' versions
    return made


def uv_is_there() -> bool:
    """Whether uv is in this environment, or could be installed into it."""
    asked = [sys.executable, "-m", "uv", "--version"]
    if subprocess.run(asked, capture_output=True, check=False).returncode == 0:
        return True
    return subprocess.run([*PIP, *CONSTRAINTS, "uv"], stderr=subprocess.DEVNULL, check=False).returncode == 0


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


def install(part: Part) -> int:
    """Install a part; return the exit code of the installer."""
    wanted = [*CONSTRAINTS, "--editable", f".[{part.extra}]"]
    environment = uv_environment(pip_settings(), os.environ)
    with_uv = environment is not None and uv_is_there()
    why_pip = "pip, as uv is not to be had here"
    if with_uv:
        compiled = ["--compile-bytecode"] if part.compiled and sys.dont_write_bytecode else []
        say(f"installing {part.content} with uv: {part.size}; about {part.minutes[0]} with a nearby package index")
        quiet = [] if sys.stderr.isatty() else ["--quiet"]
        if subprocess.run([*UV, *quiet, *compiled, *wanted], env=environment, check=False).returncode == 0:
            return 0
        why_pip = "pip, as uv has failed"
    say(f"installing {part.content} with {why_pip}: {part.size}; about {part.minutes[1]}")
    return subprocess.run([*PIP, *wanted], check=False).returncode


if __name__ == "__main__":
    sys.exit(install(PARTS[sys.argv[1]]))
