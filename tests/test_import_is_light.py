"""`import skiplens` loads nothing; its names load torch, NumPy, SciPy and nothing heavier; help loads none of them."""

import ast
import inspect
import os
import subprocess
import sys

import pytest

import skiplens as sl

HEAVY = (
    "dash dask flask gpytorch jinja2 lightning matplotlib pandas PIL plotly pooch rich safetensors sklearn tensorboard "
    "transformers typer zarr"
).split()


def loaded_after(statement: str) -> set[str]:
    """The heavy packages a fresh interpreter has loaded after `statement` but not after `import torch` alone."""
    program = f"import torch, scipy, sys; before = set(sys.modules); {statement}; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()} & set(HEAVY)


def test_import_is_light():
    assert loaded_after("import skiplens; [getattr(skiplens, name) for name in dir(skiplens)]") == set()


@pytest.mark.parametrize("package", ["jinja2", "PIL"])
def test_the_test_above_would_notice(package):
    assert package in loaded_after(f"import skiplens, {package}")


NUMERICAL = {"torch", "numpy", "scipy", "sympy"}


def packages_after(program: str) -> set[str]:
    """The numerical packages that a fresh interpreter has loaded at the end of `program`."""
    program = f"import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); {program}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stderr.split()} & NUMERICAL


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["inspect", "--help"], ["reproduce", "--help"]])
def test_help_does_not_wait_for_torch(words):
    program = f"sys.argv[1:] = {words}; from skiplens.cli.main import main; main()"
    assert packages_after(program) == set()


@pytest.mark.parametrize(("given", "wanted"), [(None, "passive"), ("active", "active")])
def test_threads_that_wait_do_not_spin_unless_the_user_says_so(given, wanted):
    """OpenMP reads it when torch is loaded, so it must be there before; `OMP_DISPLAY_ENV` has it tell what it read."""
    program = "import sys; sys.argv[1:] = ['zoo']; from skiplens.cli.main import main; main()"
    own = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    own |= {"OMP_DISPLAY_ENV": "true"} | ({} if given is None else {"OMP_WAIT_POLICY": given})
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=own)
    assert f"OMP_WAIT_POLICY = '{wanted.upper()}'" in done.stderr


def test_the_package_loads_nothing_before_a_name_is_asked_for():
    assert packages_after("import skiplens; skiplens.__version__; dir(skiplens)") == set()
    assert "torch" in packages_after("import skiplens; skiplens.find_residual_blocks")  # so it would be noticed
    assert "scipy" in packages_after("import scipy.stats")


def test_each_public_name_is_where_type_checkers_are_told():
    tree = ast.parse(inspect.getsource(sl))
    told = {
        (alias.asname, entry.module)
        for entry in ast.walk(tree)
        if isinstance(entry, ast.ImportFrom)
        for alias in entry.names
        if alias.asname
    }
    assert told == {*sl._PLACES.items(), ("surgery", "skiplens")}


def test_each_public_name_is_found_first():
    """Each in a process where no other name was asked for; all of them from one that has loaded torch."""
    program = f"""import os, torch
for name in {sorted(sl._PLACES)}:
    if not os.fork():
        import skiplens
        print(name, type(getattr(skiplens, name)).__name__, flush=True)
        os._exit(0)
    os.wait()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found = dict(line.split() for line in done.stdout.splitlines())
    assert found == {name: type(getattr(sl, name)).__name__ for name in sl._PLACES}


def test_folders_are_found_by_their_names_and_nothing_else_is():
    program = "import skiplens as sl; assert sl.zoo.build and sl.data.load and sl.surgery.add_norms"
    assert "torch" in packages_after(program)
    with pytest.raises(AttributeError, match="module 'skiplens' has no attribute 'nonsense'"):
        sl.nonsense  # noqa: B018
    with pytest.raises(AttributeError, match="module 'skiplens' has no attribute '_hidden'"):
        sl._hidden  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'nonsense'"):
        from skiplens import nonsense  # noqa: F401
