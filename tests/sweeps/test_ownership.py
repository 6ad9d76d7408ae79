import pytest

from skiplens.base.errors import InvalidInputError
from skiplens.sweeps.run import claim_folder, owner_of


def test_a_folder_belongs_to_the_first_preset(tmp_path):
    assert owner_of(tmp_path) is None
    claim_folder(tmp_path / "new", "smoke")
    claim_folder(tmp_path / "new", "smoke")
    assert owner_of(tmp_path / "new") == "smoke"
    with pytest.raises(InvalidInputError, match="holds runs of the preset 'smoke', and 'laptop' was asked for"):
        claim_folder(tmp_path / "new", "laptop")


@pytest.mark.parametrize("content", ["", "[]", "{}"])
def test_a_broken_note_is_told(tmp_path, content):
    (tmp_path / "sweep.json").write_text(content)
    with pytest.raises(InvalidInputError, match="does not say which preset its folder is for"):
        claim_folder(tmp_path, "smoke")
