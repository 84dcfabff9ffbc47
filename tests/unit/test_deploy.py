"""The files of `deploy/`, as far as they can be checked where there is neither Kubernetes nor Slurm nor Docker."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml

from study import request, run, spec
from study.submission import package

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


@pytest.fixture
def manifest() -> dict:
    return yaml.safe_load((DEPLOY / "rayjob.yaml").read_text())


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    """The part of KubeRay's own schema that the manifest uses, with unknown fields refused."""
    return jsonschema.Draft202012Validator(json.loads((ROOT / "tests" / "assets" / "rayjob.schema.json").read_text()))


def test_rayjob_has_the_fields_that_kuberay_declares(manifest, validator) -> None:
    assert [error.message for error in validator.iter_errors(manifest)] == []


def test_rayjob_schema_refuses_what_kuberay_would(manifest, validator) -> None:
    cluster = manifest["spec"]["rayClusterSpec"]
    cluster["authOptions"]["mode"] = "password"
    cluster["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]["imag"] = "x"
    del cluster["workerGroupSpecs"][0]["groupName"]
    assert len(list(validator.iter_errors(manifest))) == 3


def test_rayjob_runs_a_study_that_exists_on_storage_that_all_nodes_mount(manifest) -> None:
    job = manifest["spec"]
    python, dash, module, *words = shlex.split(job["entrypoint"])
    assert (python, dash, module) == ("python", "-m", "study.run")
    options = run.parser().parse_args(words)
    assert options.address == "auto"
    request.requested(options)
    cluster = job["rayClusterSpec"]
    workers = cluster["workerGroupSpecs"]
    for group in (cluster["headGroupSpec"], *workers):
        pod = group["template"]["spec"]
        (claim,) = (v["name"] for v in pod["volumes"] if v["persistentVolumeClaim"]["claimName"] == claim_name())
        (container,) = pod["containers"]
        (mount,) = (m["mountPath"] for m in container["volumeMounts"] if m["name"] == claim)
        assert options.storage.is_relative_to(mount)
    assert options.max_nodes == 1 + sum(group["maxReplicas"] for group in workers)
    assert job["backoffLimit"] == 0
    assert cluster["authOptions"] == {"mode": "token"}
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert all("envFrom" not in group["template"]["spec"]["containers"][0] for group in workers)


def claim_name() -> str:
    claim = yaml.safe_load((DEPLOY / "storage.yaml").read_text())
    assert (claim["kind"], claim["spec"]["accessModes"]) == ("PersistentVolumeClaim", ["ReadWriteMany"])
    return claim["metadata"]["name"]


def test_rays_version_is_the_one_that_is_tested(manifest) -> None:
    pinned = re.search(r"^ray==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    assert manifest["spec"]["rayClusterSpec"]["rayVersion"] == pinned[1]


def test_stop_may_take_as_long_as_a_submitted_study_s(manifest) -> None:
    from study.submission.job import STOP_S

    variables = yaml.safe_load(manifest["spec"]["runtimeEnvYAML"])["env_vars"]
    assert variables == {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_S)}


def test_image_gets_everything_that_it_copies() -> None:
    copied = [word for line in dockerfile("COPY") for word in line.split()[:-1]]
    assert set(package.PACKAGES) <= set(copied)
    allowed = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().split() if line.startswith("!")}
    assert set(copied) == allowed
    assert all((ROOT / name).exists() for name in copied)


def dockerfile(instruction: str) -> list[str]:
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    return re.findall(rf"^{instruction} (.*)$", text, re.MULTILINE)


def test_slurm_script_is_valid_bash() -> None:
    subprocess.run(["bash", "-n", DEPLOY / "study.sbatch"], check=True)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_slurm_script_passes_shellcheck() -> None:
    done = subprocess.run(["shellcheck", DEPLOY / "study.sbatch"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_slurm_script_names_a_study_that_exists() -> None:
    example = re.search(r"^#   sbatch deploy/study.sbatch (.*)$", (DEPLOY / "study.sbatch").read_text(), re.MULTILINE)
    assert example is not None
    options = run.parser().parse_args(shlex.split(example[1]))
    assert options.name in spec.available()
    assert options.storage.is_absolute()
