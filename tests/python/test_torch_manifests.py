"""The manifests of docs/hosts.md: what the schemas of their kinds permit, and what would be started by them."""

import importlib
import json
import os
import pathlib
import subprocess
import sys

import pytest

from two_hosts import PACKAGE, SCRIPT

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from ports import free_ports  # noqa: E402

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples" / "hosts"


def needs(name):
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        pytest.skip(f"{missing.name} is not installed")


def read(name):
    return needs("yaml").safe_load((FOLDER / name).read_text())


def check_pods(job):
    """Job and pods in the schema of Kubernetes, which permits no field that it does not know."""
    manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": job}
    needs("kubernetes_validate").validate(manifest, "1.34", strict=True)


def check_jobset(manifest):
    kind = needs("kubeflow_trainer_api.models.jobset_v1alpha2_job_set").JobsetV1alpha2JobSet
    known = kind.from_json(json.dumps(manifest)).to_dict()  # without the fields that the schema does not know
    assert known == manifest
    for job in manifest["spec"]["replicatedJobs"]:
        check_pods(job["template"]["spec"])


def check_pytorch_job(manifest):
    models = needs("kubeflow.training.models")

    def check(value, kind):
        if kind.startswith("dict("):
            for below in value.values():
                check(below, kind.split(", ")[1].rstrip(")"))
        elif kind.startswith("KubeflowOrg"):
            model = vars(models)[kind]
            types = {model.attribute_map[name]: below for name, below in model.openapi_types.items()}
            assert set(value) <= set(types), f"{kind} has no {set(value) - set(types)}"
            for name, below in value.items():
                check(below, types[name])
        elif kind in ("int", "str"):
            assert isinstance(value, {"int": int, "str": str}[kind]), f"{value} is no {kind}"
        elif kind == "V1PodTemplateSpec":
            check_pods({"template": {"spec": {**value["spec"], "restartPolicy": "Never"}}})

    check(manifest, "KubeflowOrgV1PyTorchJob")
    replicas = manifest["spec"]["pytorchReplicaSpecs"]
    assert set(replicas) == {"Master", "Worker"} and replicas["Master"]["replicas"] == 1
    for replica in replicas.values():
        assert [container["name"] for container in replica["template"]["spec"]["containers"]] == ["pytorch"]


@pytest.mark.parametrize(("name", "check"), [("jobset.yaml", check_jobset), ("pytorchjob.yaml", check_pytorch_job)])
def test_a_manifest_is_what_its_schema_permits(name, check):
    manifest = read(name)
    check(manifest)
    for wrong in ('"command"', '"replicas"', '"backoffLimit"', '"restartPolicy"'):
        text = json.dumps(manifest)
        if wrong not in text:
            continue
        with pytest.raises(Exception):  # noqa: B017  # each schema has its own
            check(json.loads(text.replace(wrong, wrong[:-1] + 's"')))


def check_one_job(folder, commands, variables):
    """What pods or machines would start, as processes of this host: (command, its variables) by rank."""
    (folder / "train.py").write_text(SCRIPT)
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    here = {**variables, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(PACKAGE), "PATH": path}
    processes = [subprocess.Popen(command, cwd=folder, env={**os.environ, **given, **here}, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                 for command, given in commands]  # fmt: skip
    try:
        outputs = [process.communicate(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for rank, (output, errors) in enumerate(outputs):
        assert f"rank {rank} of {len(commands)} " in output and output.rstrip().endswith("True"), output + errors


def test_the_pods_of_the_jobset_make_one_job(tmp_path):
    commands = []
    for job in read("jobset.yaml")["spec"]["replicatedJobs"]:
        (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
        given = {entry["name"]: entry["value"] for entry in container["env"]}
        assert given["MASTER_ADDR"] == "train-old-0-0.train"
        for index in range(job["template"]["spec"]["completions"]):
            commands.append((container["command"], {**given, "JOB_COMPLETION_INDEX": str(index)}))
    check_one_job(tmp_path, commands, {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0])})


def test_the_machines_of_skypilot_make_one_job(tmp_path):
    task = read("sky.yaml")
    (secret,) = task["secrets"]
    command = ["sh", "-c", task["run"].replace(":29400", f":{free_ports(1)[0]}")]
    ranks = [(command, {"SKYPILOT_NODE_RANK": str(rank)}) for rank in range(task["num_nodes"])]
    check_one_job(tmp_path, ranks, {"SKYPILOT_NODE_IPS": "127.0.0.1\n127.0.0.1", secret: "0123456789abcdef" * 2})
