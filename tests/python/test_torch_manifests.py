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
    """The file's documents: what starts the job comes last."""
    return list(needs("yaml").safe_load_all((FOLDER / name).read_text()))


def check_kubernetes(manifest):
    """In the schema of Kubernetes, which permits no field that it does not know."""
    needs("kubernetes_validate").validate(manifest, "1.34", strict=True)


def check_pods(job):
    check_kubernetes({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": job})


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
    claim, manifest = read(name)
    check_kubernetes(claim)
    assert claim["metadata"]["name"] == "saved"
    check(manifest)
    for wrong in ('"command"', '"replicas"', '"backoffLimit"', '"restartPolicy"'):
        text = json.dumps(manifest)
        if wrong not in text:
            continue
        with pytest.raises(Exception):  # noqa: B017  # each schema has its own
            check(json.loads(text.replace(wrong, wrong[:-1] + 's"')))


def run_as_processes(folder, script, commands, variables):
    """What pods or machines would start, as processes of this host: (command, its variables) by rank. Returns what each
    of them wrote."""
    (folder / "train.py").write_text(script)
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
        assert f"rank {rank} of {len(commands)} " in output, output + errors
    return [output.rstrip() for output, _ in outputs]


def in_pod(folder, pod, variables):
    """The command of a pod's container and its variables; what it mounts at /saved is folder/saved here."""
    (container,) = pod["containers"]
    claims = {volume["name"]: volume["persistentVolumeClaim"]["claimName"] for volume in pod.get("volumes", [])}
    mounts = {mount["mountPath"]: claims[mount["name"]] for mount in container.get("volumeMounts", [])}
    place = folder / "saved" if mounts == {"/saved": "saved"} else folder / "unmounted"
    command = [word.replace("/saved/", f"{place}/") for word in container["command"]]
    return command, {**{entry["name"]: entry["value"] for entry in container["env"]}, **variables}


def pods_of_the_jobset(folder):
    for job in read("jobset.yaml")[-1]["spec"]["replicatedJobs"]:
        pod = job["template"]["spec"]["template"]["spec"]
        for index in range(job["template"]["spec"]["completions"]):
            command, variables = in_pod(folder, pod, {"JOB_COMPLETION_INDEX": str(index)})
            assert variables["MASTER_ADDR"] == "train-new-0-0.train"
            yield command, variables


def pods_of_the_pytorch_job(folder):
    """With what the training operator tells them: the master is rank 0."""
    replicas = read("pytorchjob.yaml")[-1]["spec"]["pytorchReplicaSpecs"]
    kinds = [kind for kind in ("Master", "Worker") for _ in range(replicas[kind]["replicas"])]
    pods = [replicas[kind]["template"]["spec"] for kind in kinds]
    for rank, pod in enumerate(pods):
        yield in_pod(folder, pod, {"RANK": str(rank), "WORLD_SIZE": str(len(pods))})


@pytest.mark.parametrize("pods", [pods_of_the_jobset, pods_of_the_pytorch_job])
def test_the_pods_of_a_manifest_make_one_job_that_goes_on_when_started_again(pods, tmp_path):
    (tmp_path / "saved").mkdir()
    script = (FOLDER / "train.py").read_text()
    for text, steps in ((script.replace("epochs(4)", "epochs(2)"), "0 to 40"), (script, "40 to 80")):
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0])}
        for output in run_as_processes(tmp_path, text, list(pods(tmp_path)), address):
            assert output.endswith(f"from step {steps}"), output


def test_the_machines_of_skypilot_make_one_job(tmp_path):
    (task,) = read("sky.yaml")
    (secret,) = task["secrets"]
    command = ["sh", "-c", task["run"].replace(":29400", f":{free_ports(1)[0]}")]
    ranks = [(command, {"SKYPILOT_NODE_RANK": str(rank)}) for rank in range(task["num_nodes"])]
    variables = {"SKYPILOT_NODE_IPS": "127.0.0.1\n127.0.0.1", secret: "0123456789abcdef" * 2}
    for output in run_as_processes(tmp_path, SCRIPT, ranks, variables):
        assert output.endswith("True"), output
