"""`ray up`, `ray submit` and `ray down` for real: cluster/launch/local.yaml against an sshd on loopback.

The sshd, its keys, the home directory of its sessions, the wheel, and Ray's ports and temporary directory are this
test's own. Only parts that are slow or reach beyond the test are replaced: the node sees the running Python's
packages, so that nothing but the wheel has to be installed, and `ray stop` ends this test's Ray alone.
"""

import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
import yaml

from testbed.records import RunRecords
from tests.repository import ROOT

pytestmark = [pytest.mark.ray, pytest.mark.launch, pytest.mark.slow, pytest.mark.timeout(900)]
PROJECT = ROOT
SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
TINY: dict[str, Any] = {
    "name": "launched", "seed": 3, "rounds": 2, "population": 12,
    "workload": {"dataset": "digits", "model": "logistic"}, "selection": {"participants": 4},
    "aggregation": {"protocol": "secagg", "threshold": 0.6}, "time": {"compute": "modelled"},
}  # fmt: skip


@pytest.fixture(scope="module")
def sshd_program() -> str:
    """Debian's sshd and rsync, installed where we may."""
    global SSHD
    if (SSHD is None or shutil.which("rsync") is None) and os.geteuid() == 0 and shutil.which("apt-get"):
        for command in (["update"], ["install", "-y", "--no-install-recommends", "openssh-server", "rsync"]):
            environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
            subprocess.run(["apt-get", "-q", *command], env=environment, capture_output=True, timeout=240, check=False)
        SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin")
    if SSHD is None or shutil.which("rsync") is None or shutil.which("ssh") is None:
        pytest.skip("no sshd, ssh or rsync here, and they cannot be installed (apt-get as root)")
    return SSHD


@dataclass(frozen=True)
class Launched:
    """The machine that `ray up` is run on, and the node (the same machine) behind the sshd.

    Attributes:
        folder: everything of this test.
        home: the home directory of the sessions on the node.
        launch_file: local.yaml for this node.
        environment: for the `ray` commands.
    """

    folder: Path
    home: Path
    launch_file: Path
    environment: dict[str, str]

    def ray(self, *arguments: str, code: int = 0) -> str:
        """Run a `ray` command; its output, without colours."""
        command = [sys.executable, "-m", "ray.scripts.scripts", *arguments]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=300, check=False,
        )  # fmt: skip
        output = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)  # Ray colours its log wherever it goes
        assert done.returncode == code, output[-6000:]
        return output

    def processes(self) -> list[psutil.Process]:
        """Return the processes of this test's Ray: they name its temporary directory, or are children of one."""
        mine = [process for process in psutil.process_iter(["cmdline"]) if self._names_us(process)]
        return [process for process in mine if process.pid != os.getpid()]

    def _names_us(self, process: psutil.Process) -> bool:
        return any(str(self.folder) in argument for argument in process.info["cmdline"] or ())


@pytest.fixture(scope="module")
def launched(sshd_program: str) -> Iterator[Launched]:
    """A node behind an sshd; at the end nothing of it runs any more."""
    folder = Path(tempfile.mkdtemp(prefix="up-", dir="/tmp"))  # short: Ray's sockets lie below it
    port = free_port()
    sshd = start_sshd(sshd_program, folder, port)
    cluster = Launched(folder, folder / "home", folder / "local.yaml", environment(folder, port))
    try:
        prepare(cluster)
        yield cluster
    finally:
        end([*cluster.processes(), psutil.Process(sshd.pid)])
        sshd.wait(10)
        shutil.rmtree(folder)


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def start_sshd(program: str, folder: Path, port: int) -> subprocess.Popen[bytes]:
    """Start an sshd on loopback with its own keys and with sessions in ``folder/home``."""
    (folder / "home").mkdir()
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    settings = {
        "Port": port, "ListenAddress": "127.0.0.1", "HostKey": folder / "host", "PidFile": "none",
        "AuthorizedKeysFile": folder / "user.pub", "PasswordAuthentication": "no", "UsePAM": "no",
        "PermitRootLogin": "prohibit-password", "StrictModes": "no", "SetEnv": f"HOME={folder / 'home'}",
    }  # fmt: skip
    (folder / "sshd_config").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where a root's sshd locks itself in
    log = (folder / "sshd.log").open("wb")
    sshd = subprocess.Popen([program, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log)
    log.close()
    return sshd


def environment(folder: Path, port: int) -> dict[str, str]:
    """For the `ray` commands: an `ssh` before the real one that goes to our sshd and keeps no connection open."""
    programs = folder / "programs"
    programs.mkdir()
    ssh = programs / "ssh"
    ssh.write_text(
        f'#!/bin/sh\nexec {shutil.which("ssh")} -F none -p {port} -o ControlMaster=no -o ControlPath=none "$@"\n'
    )
    ssh.chmod(0o755)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("RAY_", "PYTHONPATH"))}
    return kept | {
        "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(folder), "TERM": "dumb",
        "RAY_TMPDIR": str(folder), "RAY_USAGE_STATS_ENABLED": "0", "TMPDIR": str(folder),
    }  # fmt: skip


def prepare(cluster: Launched) -> None:
    """Lay out what a user has: a wheel, experiments, a token, and local.yaml with the node's address and keys."""
    folder, home = cluster.folder, cluster.home
    source = folder / "source"  # so that no build folder is left in the checkout
    ignored = shutil.ignore_patterns(".*", "build", "dist", "runs", "tmp", "*.egg-info", "__pycache__", "tests", "docs")
    shutil.copytree(PROJECT, source, ignore=ignored)
    build = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--wheel-dir", str(folder / "dist")]
    setuptools = next(metadata.distributions(name="setuptools"), None)
    if setuptools is not None and int(setuptools.version.partition(".")[0]) >= 77:  # pyproject.toml's; else pip gets it
        build.append("--no-build-isolation")
    subprocess.run([*build, str(source)], check=True, timeout=240)
    shutil.rmtree(source)
    (folder / "examples").mkdir()
    (folder / "examples" / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    for name in ("cluster/launch", "constraints.txt", "cluster/submit.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (PROJECT / name).is_dir() else shutil.copy)(PROJECT / name, folder / name)
    cluster.ray("get-auth-token", "--generate")

    config = yaml.safe_load((PROJECT / "cluster/launch/local.yaml").read_text())
    config["provider"] |= {"head_ip": "127.0.0.1", "worker_ips": []}
    config["auth"] = {"ssh_user": getpass.getuser(), "ssh_private_key": str(folder / "user")}
    # install.sh finds an environment that sees the packages of the running Python, and adds the wheel to it.
    (home / ".bashrc").write_text(f"export RAY_TMPDIR={home}\n")  # --address auto: of this test's Ray, not of another's
    venv = home / "sortition-testbed" / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    [installed] = venv.glob("lib/python*/site-packages")
    (installed / "running.pth").write_text(f"{Path(ray.__file__).parents[1]}\n")
    program = venv / "bin" / "ray"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = stop ] && exec {venv}/bin/python {home}/stop.py\n'
        f'exec {venv}/bin/python -m ray.scripts.scripts "$@"\n'
    )
    program.chmod(0o755)
    (home / "stop.py").write_text(STOP.format(home=home))
    start = config["head_start_ray_commands"][-1]
    assert "--port=6379 --object-manager-port=8076" in start
    own = f"--port={free_port()} --num-cpus=2 --include-dashboard=false"
    config["head_start_ray_commands"][-1] = start.replace("--port=6379 --object-manager-port=8076", own)
    cluster.launch_file.write_text(yaml.safe_dump(config))


STOP = """
import os
import signal

import psutil

mine = [p for p in psutil.process_iter(["cmdline"]) if any("{home}" in a for a in p.info["cmdline"] or ())]
mine = [p for p in mine if p.pid not in (os.getpid(), os.getppid())]
for process in mine:
    process.send_signal(signal.SIGTERM)
for process in psutil.wait_procs(mine, timeout=5)[1]:
    process.kill()
"""


def end(processes: list[psutil.Process]) -> None:
    """End processes, by id."""
    family = {child for process in processes if process.is_running() for child in process.children(recursive=True)}
    for process in (doomed := [*{*processes, *family}]):
        if process.is_running():
            process.send_signal(signal.SIGTERM)
    for process in psutil.wait_procs(doomed, timeout=5)[1]:
        process.kill()


def test_up_submit_down(launched: Launched) -> None:
    up = launched.ray("up", "--yes", "--no-config-cache", str(launched.launch_file))
    assert "New status: up-to-date" in up, up[-6000:]
    token = (launched.folder / ".ray/auth_token").read_text()
    assert (launched.home / ".ray/auth_token").read_text() == token
    assert token not in up
    assert (launched.home / ".ray/auth_token").stat().st_mode & 0o077 == 0

    submit = ["submit", str(launched.launch_file), "cluster/submit.py", "--"]
    output = launched.ray(*submit, "examples/tiny.yaml", "--out", "runs/tiny")
    assert "launched: round 2/2 completed" in output
    assert output.count("launched: round") == 2  # lines, not bars
    records = RunRecords(launched.home / "sortition-testbed/runs/tiny")
    assert records.rounds["outcome"].tolist() == ["completed", "completed"]

    check = "python -m testbed cluster check sortition-testbed/examples/tiny.yaml --out sortition-testbed/runs"
    checked = launched.ray("exec", str(launched.launch_file), f"cd && {check}")
    assert "fail" not in checked
    assert re.search(r"ok +memory", checked)

    refused = launched.ray(*submit, "examples/none.yaml", code=1)  # ray's own code for any failure on the head
    assert "examples/none.yaml" in refused

    launched.ray("down", "--yes", str(launched.launch_file))
    left = [process.cmdline() for process in launched.processes() if "sshd" not in process.name()]
    assert left == []
