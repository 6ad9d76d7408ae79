"""What CI installs with checksums is what `constraints.txt` names."""

import re

import pytest
from tools.hash_constraints import CONSTRAINTS, HASHED, fits, pins


def test_every_package_but_torch_has_a_checksum():
    lines = HASHED.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()[1:]
    found = {}
    for line in lines:
        name, version, hashes = re.fullmatch(r"(\S+)==(\S+)((?:\s+--hash=sha256:[0-9a-f]{64})+)", line).groups()
        found[name] = version
        assert hashes.split() == sorted(set(hashes.split()))
    assert found == pins(), "run python tools/hash_constraints.py"
    assert set(re.findall(r"^([\w.-]+)==", CONSTRAINTS.read_text(), re.M)) == {*found, "torch"}


@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        ("a-1.0-py3-none-any.whl", True),
        ("a-1.0-py2.py3-none-any.whl", True),
        ("a-1.0-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", True),
        ("a-1.0-cp39-abi3-manylinux_2_28_x86_64.whl", True),
        ("a-1.0.tar.gz", True),
        ("a-1.0-cp311-cp311-manylinux_2_17_aarch64.whl", False),
        ("a-1.0-cp310-cp310-manylinux_2_17_x86_64.whl", False),
        ("a-1.0-cp311-cp311-win_amd64.whl", False),
        ("a-1.0.1-py3-none-any.whl", False),
        ("a-1.0.exe", False),
    ],
)
def test_files_for_the_machine_of_ci(file, wanted):
    assert fits(file, "1.0") == wanted
