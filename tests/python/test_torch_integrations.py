"""Lightning, Accelerate and the Hugging Face Trainer: each example runs on two workers, if the package is there."""

import importlib.util
import pathlib

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"


@pytest.mark.parametrize("package", ["lightning", "accelerate", "transformers"])
def test_the_example_uses_every_sample_once(package, pair):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    first, second = pair.run("example", path=str(EXAMPLES / f"with_{package}.py"), arguments=[])
    steps = 40 if package != "transformers" else 20  # two epochs of 1280 / 64, of 320 / 32
    assert first == second
    assert first.startswith(f"steps {steps} complete True")


def test_a_hugging_face_dataset_is_dealt_by_a_column(pair):
    for package in ("transformers", "datasets"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    results = pair.run("torch_cost_cases:cost_hugging_face")
    for lengths in ("length", "input_ids"):
        used = sorted(number for result in results for number in result[lengths]["seen"])
        assert used == list(range(120))
    assert all(result["length"]["far"] < 1e-10 for result in results)
    wasted = sum(result["length"]["wasted"] for result in results)
    assert wasted < 0.8 * sum(result["by count"]["wasted"] for result in results)
