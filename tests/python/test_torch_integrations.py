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
