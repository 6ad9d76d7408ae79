"""Every benchmark works, at tiny sizes, and records what the page shows."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from tests.benchmarks.conftest import FOLDER


@pytest.fixture
def quick(tmp_path):
    def run(*names):
        command = [
            sys.executable,
            "-W",
            "ignore",
            str(FOLDER / "run.py"),
            *names,
            "--quick",
            "--results",
            str(tmp_path),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        return {file.stem: json.loads(file.read_text())["rows"] for file in tmp_path.glob("*.json")}

    return run


@pytest.mark.parametrize(
    "scripts",
    [
        pytest.param(("densenet_gram", "path_weights", "module_kernel_gram"), marks=pytest.mark.slow),
        pytest.param(("infinite_width_gram", "gram_store"), marks=pytest.mark.slow),
        pytest.param(("finite_width_simulation", "exact_hessian", "path_spectrum"), marks=pytest.mark.slow),
        pytest.param(("empirical_ntk", "jacobian_singular_values"), marks=pytest.mark.slow),
        pytest.param(("hessian_product", "hessian_density", "learning_rate_grid"), marks=pytest.mark.slow),
    ],
    ids=lambda scripts: scripts[0],
)
def test_scripts_run_and_their_numbers_agree(quick, scripts):
    import run

    assert set(scripts) <= {*run.SCRIPTS, *run.PROGRAMS}
    found = quick(*scripts)
    assert set(found) == set(scripts)
    for row in (row for rows in found.values() for row in rows if "ours" in row):
        assert row["ours"]["cpu_s"] > 0
        assert {"targets", "growth", "environment"} <= set(row)


def test_no_script_is_forgotten():
    import run
    from page import PROCESSOR_ROWS

    assert set(PROCESSOR_ROWS) == set(run.SCRIPTS)
    written = {file.stem for file in FOLDER.glob("*.py") if "\nROWS" in file.read_text("utf-8")}
    assert written == set(run.SCRIPTS)
    names = [row.name for _, row in run.chosen([])]
    assert len(names) == len(set(names))


@pytest.mark.slow
def test_kernel_regression_runs_on_a_handful_of_images(tmp_path):
    import numpy as np

    from skiplens import data

    images = data.sample()
    for split, part in (("train", slice(0, 300)), ("test", slice(300, 400))):
        numbers = {"images": images.images[part].numpy(), "labels": images.labels[part].numpy()}
        np.savez(tmp_path / f"mnist-{split}-0.npz", **numbers)
    files = [str(file) for file in tmp_path.glob("*.npz")]
    sizes = ["--samples", "300", "--select", "200", "--validation", "100", "--quick"]
    command = [sys.executable, str(FOLDER / "kernel_regression.py"), "--data", *files, *sizes]
    done = subprocess.run([*command, "--json", str(tmp_path / "out.json")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert [row["architecture"] for row in rows] == ["resnet", "densenet", "vanilla"]
    assert all(row["test"] > 0.5 for row in rows)  # by chance one image in ten


def test_regression_with_the_kernel_of_a_module_goes_on_where_it_was_killed(tmp_path):
    generator = torch.Generator().manual_seed(0)
    for split, count in (("train", 10), ("test", 4)):
        images = torch.randn(count, 3, 8, 8, generator=generator).numpy()
        np.savez(tmp_path / f"planted-{split}-0.npz", images=images, labels=np.arange(count) % 2)
    command = [sys.executable, str(FOLDER / "module_kernel_regression.py"), "--device", "cpu", "--samples", "10"]
    command += ["--test", "4", "--pixels", "4", "--strip", "4", "--json", str(tmp_path / "rows.json")]
    command += ["--data", *map(str, tmp_path.glob("*.npz")), "--store", str(tmp_path / "strips")]

    def row():
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads((tmp_path / "rows.json").read_text())["rows"][0]

    first, strips = row(), sorted((tmp_path / "strips").glob("*.pt"))
    assert first["pixels"] == 4 and len(strips) == 3 + 1
    kept = {strip: strip.stat().st_mtime_ns for strip in strips[1:]}
    strips[0].unlink()  # of the test images, as if it had been killed before
    second = row()
    assert all(second[name] == first[name] for name in ("ntk_accuracy", "nngp_accuracy", "train_s"))
    assert strips[0].exists() and all(strip.stat().st_mtime_ns == time for strip, time in kept.items())
