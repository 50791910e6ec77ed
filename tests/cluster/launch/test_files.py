"""The launch files against the schemas of their readers, and against each other; no secrets in any of them."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import ray.autoscaler
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

from tests.repository import ROOT

PROJECT = ROOT
LAUNCH = PROJECT / "cluster/launch"
RAY_UP = ("local.yaml", "aws.yaml", "gcp.yaml")
KUBERAY = ("raycluster.yaml", "rayjob.yaml")
SCHEMAS = Path(__file__).parent / "schemas"
RAY_SCHEMA = json.loads((Path(ray.autoscaler.__file__).parent / "ray-schema.json").read_text())
PINNED = dict(
    line.split("==") for line in (PROJECT / "constraints.txt").read_text().splitlines() if line and line[0] != "#"
)


def documents(name: str) -> list[dict[str, Any]]:
    """The YAML documents of a launch file."""
    return list(yaml.safe_load_all((LAUNCH / name).read_text()))


@pytest.mark.parametrize("name", RAY_UP)
def test_ray_up_takes_it(name: str) -> None:
    [config] = documents(name)
    jsonschema.validate(config, RAY_SCHEMA)
    prepared = prepare_config(config)
    validate_config(prepared)
    head, workers = ("local.cluster.node",) * 2 if name == "local.yaml" else ("head", "worker")
    types = prepared["available_node_types"]
    assert prepared["head_node_type"] == head
    assert types[workers]["min_workers"] == types[workers]["max_workers"] == prepared["max_workers"]
    # Ray would add commands of its own: other versions of Ray, cloud libraries that conflict
    assert prepared["head_setup_commands"] == prepared["worker_setup_commands"] == config["setup_commands"]


def test_a_mistake_would_be_seen() -> None:
    [config] = documents("local.yaml")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(config | {"file_mount": {}}, RAY_SCHEMA)
    job = documents("rayjob.yaml")[-1]
    job["spec"]["rayClusterSpec"]["headGroupSpecs"] = {}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(job, kuberay_schema("RayJob"))


def kuberay_schema(kind: str) -> dict[str, Any]:
    """Our schema of a KubeRay resource; see its ``$comment``."""
    schema: dict[str, Any] = json.loads((SCHEMAS / "kuberay.json").read_text())
    return schema | {"$ref": f"#/$defs/{kind}"}


@pytest.mark.parametrize("name", KUBERAY)
def test_kuberay_takes_it(name: str) -> None:
    claim, resource = documents(name)
    assert claim["kind"] == "PersistentVolumeClaim"
    jsonschema.Draft202012Validator(kuberay_schema(resource["kind"])).validate(resource)
    cluster = resource["spec"].get("rayClusterSpec", resource["spec"])
    assert cluster["rayVersion"] == PINNED["ray"]
    pods = [cluster["headGroupSpec"]["template"], *(group["template"] for group in cluster["workerGroupSpecs"])]
    images = {container["image"] for pod in pods for container in pod["spec"]["containers"]}
    assert len(images) == 1
    volumes = {volume["persistentVolumeClaim"]["claimName"] for volume in pods[0]["spec"]["volumes"]}
    assert volumes == {claim["metadata"]["name"]}
    if resource["kind"] == "RayJob":
        script, experiment = resource["spec"]["entrypoint"].split()[1:3]
        assert script == "/home/ray/sortition-testbed/submit.py"
        assert (PROJECT / experiment).is_file()
        assert (
            "--resume" in resource["spec"]["entrypoint"]
        )  # or a retry would find the first attempt's records and refuse


def test_the_image_has_the_pinned_ray() -> None:
    dockerfile = (LAUNCH / "Dockerfile").read_text()
    [base] = re.findall(r"^ARG BASE=(\S+)$", dockerfile, re.MULTILINE)
    assert base.split(":")[1].startswith(f"{PINNED['ray']}-py3")
    for source in re.findall(r"^COPY (?:--\S+ )?(.+)$", dockerfile, re.MULTILINE):
        for path in source.split()[:-1]:
            assert path.startswith("dist/") or (PROJECT / path).exists(), path


@pytest.mark.parametrize("name", RAY_UP)
def test_files_copied_to_the_nodes_are_used(name: str) -> None:
    [config] = documents(name)
    mounts = config["file_mounts"]
    for target, source in mounts.items():
        assert target.startswith("~/")
        made = ("dist", "~/.ray/auth_token")  # by `make wheel` and `ray get-auth-token --generate`, as the file says
        assert source in made or (PROJECT / source).exists(), source
    [setup] = config["setup_commands"]
    assert setup.startswith("bash ~/sortition-testbed/launch/install.sh")
    subprocess.run(["bash", "-n", str(LAUNCH / "install.sh")], check=True)
    start = " ".join(config["head_start_ray_commands"])
    assert "--autoscaling-config=~/ray_bootstrap_config.yaml" in start
    [port] = re.findall(r"--port=(\d+)", start)
    assert f"--address=$RAY_HEAD_IP:{port}" in " ".join(config["worker_start_ray_commands"])


@pytest.mark.parametrize(
    "path", sorted(path for path in LAUNCH.rglob("*") if path.is_file()), ids=lambda path: path.name
)
def test_no_secrets_no_accounts_no_registries(path: Path) -> None:
    text = path.read_text()
    forbidden = {
        "AWS access key": r"\b(AKIA|ASIA)[A-Z0-9]{16}\b",
        "AWS account or ARN": r"\barn:aws|\b\d{12}\b",
        "AWS resource id": r"\b(ami|subnet|sg|vpc|i)-[0-9a-f]{8,17}\b",
        "private key": r"-----BEGIN",
        "token or digest": r"\b[0-9a-fA-F]{32,}\b",
        "password": r"(?i)\b(password|secret_access_key|api_key)\s*[:=]\s*\S",
        "registry": r"(?i)\b[a-z0-9.-]+\.(io|com|dev|net)/[a-z0-9._/-]+:[a-z0-9]",
        "address with user": r"\b[\w.]+@[\w-]+\.\w+",
    }
    for what, pattern in forbidden.items():
        assert not re.search(pattern, text), what
    if path.name == "gcp.yaml":
        assert yaml.safe_load(text)["provider"]["project_id"] is None
    for document in yaml.safe_load_all(text) if path.suffix == ".yaml" else ():
        assert document["kind"] != "Secret" if "kind" in document else True
