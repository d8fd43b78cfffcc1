"""The options of a job have the same names, defaults and checks on the command line, in Python and in core's table."""

import ast
import dataclasses
import inspect
import os
import pathlib
import re
import subprocess
import sys
import typing

import pytest

from isochron import _core
from isochron.keywords import JobKeywords, TensorFlowJobKeywords, TorchJobKeywords
from isochron.options import SharedOptions

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Options(SharedOptions):
    FRAMEWORK = "torch"
    EXTRAS = {"log": None}


def names(face):
    return {row["name"] for row in _core.job_options() if row[face]}


def test_help_of_the_program_has_every_option_of_the_table():
    program = os.environ.get("ISOCHRON_PROGRAM")
    if not program:
        pytest.skip("ISOCHRON_PROGRAM is not set")
    done = subprocess.run([program, "train", "--help"], capture_output=True, text=True)
    if "isochron-worker" in done.stderr:
        pytest.skip("the program was built without the engine")
    shown = {name.replace("-", "_") for name in re.findall(r"^  --(?:\[no-\])?([a-z-]+)", done.stdout, re.MULTILINE)}
    assert names("command_line") - shown == set()
    in_python_alone = (names("torch") | names("tensorflow")) - names("command_line")
    assert in_python_alone & shown == set()


def test_typed_keywords_are_those_of_the_table():
    for one, face in ((TorchJobKeywords, "torch"), (TensorFlowJobKeywords, "tensorflow")):
        assert set(typing.get_type_hints(one)) == names(face) - {"global_batch"}
        for row in _core.job_options():
            if row[face] and row["type"] == "str" and row["choices"][face]:
                assert list(typing.get_args(typing.get_type_hints(one)[row["name"]])) == row["choices"][face]
    rows = _core.job_options()
    other_values = {row["name"] for row in rows if row["choices"]["torch"] != row["choices"]["tensorflow"]}
    shared = names("torch") & names("tensorflow") - {"global_batch"} - other_values
    assert set(typing.get_type_hints(JobKeywords)) == shared


@pytest.mark.parametrize(
    ("framework", "name", "value", "permitted"),
    [
        ("torch", "lr_rule", "adascale", "none, linear, sqrt, legw with PyTorch"),
        ("tensorflow", "on_nonfinite", "rollback", "stop, skip, ignore with TensorFlow"),
        ("tensorflow", "sync", "local", "bsp, asp, ssp with TensorFlow"),
    ],
)
def test_a_value_that_a_framework_does_not_have_is_refused(framework, name, value, permitted):
    settings = _core.JobSettings(global_batch=8, **{name: value})
    with pytest.raises(ValueError, match=re.escape(f"{name} is '{value}'; permitted: {permitted}")):
        settings.validate(framework)


def test_the_job_takes_these_keywords():
    torch = pytest.importorskip("isochron.torch")
    parameters = inspect.signature(torch.Job.__init__).parameters
    assert "global_batch" in parameters
    assert "Keywords" in str(parameters["options"].annotation)


def test_what_a_job_of_pytorch_has_and_takes_is_documented():
    torch = pytest.importorskip("isochron.torch")
    from isochron.torch.source import LoaderKeywords, LoaderOptions

    assert LoaderKeywords.__annotations__.keys() == {field.name for field in dataclasses.fields(LoaderOptions)}
    document = (ROOT / "docs" / "pytorch.md").read_text()
    named = set(re.findall(r"`(?:job\.)?(\w+)[^`\n]*`", document))
    public = {name for name in dir(torch.Job) if not name.startswith("_")}
    wanted = public | {"device", "options"} | torch.JobOptions.EXTRAS.keys() | LoaderKeywords.__annotations__.keys()
    assert wanted - named == set()


def test_what_a_job_of_tensorflow_has_and_takes_is_documented():
    """The source is read, since the tests of the package have no TensorFlow."""
    folder = ROOT / "python" / "isochron" / "tensorflow"
    public, told = set(), set()
    for file, name in (("job.py", "Job"), ("datasets.py", "HandsOut"), ("options.py", "TensorFlowKeywords")):
        tree = ast.parse((folder / file).read_text())
        made = next(one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == name)
        members = [one for one in made.body if isinstance(one, (ast.FunctionDef, ast.AnnAssign))]
        names = {one.name if isinstance(one, ast.FunctionDef) else one.target.id for one in members}
        stored = [one for one in ast.walk(made) if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store)]
        names |= {one.attr for one in stored if isinstance(one.value, ast.Name) and one.value.id == "self"}
        public |= {one for one in names if not one.startswith("_")}
        told |= {one.name for one in members if isinstance(one, ast.FunctionDef)}
    assert {"dataset", "prepare", "summary"} <= told and {"last_loss", "log"} <= public
    document = (ROOT / "docs" / "tensorflow.md").read_text()
    assert public - set(re.findall(r"`(?:job\.)?(\w+)[^`\n]*`", document)) == set()


def test_what_is_written_from_the_table_is_current():
    done = subprocess.run([sys.executable, ROOT / "scripts" / "options.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_default_is_a_value_that_is_permitted():
    for row in _core.job_options():
        if row["name"] != "global_batch":
            _core.JobSettings(**{row["name"]: row["default"]})


def test_what_is_not_permitted_is_named():
    for keyword, value, words in (
        ("global_batch", 0, "global_batch is 0; permitted: a whole number from 1 to 1000000000"),
        ("global_batch", True, "global_batch is True; permitted: a whole number"),
        ("global_batch", "8", "global_batch is '8'; permitted: a whole number"),
        ("sync", "half", "sync is 'half'; permitted: bsp, local, asp, ssp"),
        ("on_nonfinite", "maybe", "on_nonfinite is 'maybe'; permitted: stop, skip, rollback, ignore"),
        ("sync_batch_norm", 1, "sync_batch_norm is 1; permitted: True, False"),
        ("timeout", float("nan"), "timeout is nan; permitted: a finite number, 0.001 or more"),
    ):
        with pytest.raises(ValueError, match=re.escape(words)):
            Options(**{keyword: value})


def test_an_unknown_keyword_is_told_which_is_near():
    with pytest.raises(TypeError, match="no option 'global_bach'; did you mean global_batch?"):
        Options(global_bach=8)
    with pytest.raises(TypeError, match="no option 'bucket_bytes'"):
        Options(global_batch=8, bucket_bytes=4096)  # of the native engine alone


def test_older_names_are_taken():
    options = Options(global_batch=8, numbers="skip", rate="linear", warmup=3)
    assert (options.on_nonfinite, options.lr_rule, options.warmup_steps) == ("skip", "linear", 3)


def test_what_is_said_in_vain_is_refused():
    options = Options(global_batch=8, staleness=2)
    with pytest.raises(ValueError, match="staleness is 2 with sync 'bsp'; permitted: with sync 'ssp'"):
        options.validate()


def test_a_value_is_the_one_that_was_set_last_by_whatever_name():
    options = Options(global_batch=4)
    assert (options.on_nonfinite, options.numbers) == ("stop", "stop")
    options.numbers = "skip"
    assert (options.on_nonfinite, options.numbers, options.global_batch) == ("skip", "skip", 4)


def test_workers_compare_every_option_that_they_must_share():
    other = {"policy": "uniform", "weighting": "mean", "last_batch": "drop", "sync": "ssp", "push_rate": "staleness",
             "transport": "sockets", "lr_rule": "sqrt", "compression": "bf16", "on_nonfinite": "skip",
             "on_bad_sample": "skip", "outer": "nesterov", "network_share": 0.5, "outer_momentum": 0.5}  # fmt: skip
    for row in _core.job_options():
        number = 4096 if row["name"] == "bucket_bytes" else 7
        value = other.get(row["name"], not row["default"] if row["type"] == "bool" else number)
        if row["type"] == "str" and row["name"] not in other:
            continue  # names for people
        mine, theirs = _core.JobSettings(), _core.JobSettings(**{row["name"]: value})
        refusal = _core.objection(theirs.introduction("cpu", first=False), mine.introduction("cpu", first=True))
        assert refusal.startswith(f"{row['name']} is") == row["agreed"], (row["name"], refusal)


@pytest.mark.parametrize("name", ["torch.job", "torch.steps", "torch.loader", "tensorflow.job", "tensorflow.datasets"])
def test_what_the_reference_shows_of_a_job_is_documented(name):
    """The site's reference leaves out what has no docstring."""
    path = ROOT / "python" / "isochron" / (name.replace(".", "/") + ".py")
    for one in ast.parse(path.read_text()).body:
        if isinstance(one, ast.ClassDef) and not one.name.startswith("_"):
            public = [each for each in one.body if isinstance(each, ast.FunctionDef) and not each.name.startswith("_")]
            assert [f"{one.name}.{each.name}" for each in public if not ast.get_docstring(each)] == []
