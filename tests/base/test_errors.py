import subprocess
import sys

import pytest

from skiplens.base import DataError, InvalidInputError, pick, refuse_if, require_known


def test_only_what_is_wrong_is_refused_with_the_error_that_was_asked_for():
    refuse_if([], "nothing is wrong")
    with pytest.raises(InvalidInputError, match="three is too many"):
        refuse_if(3 > 2, "three is too many")
    with pytest.raises(DataError, match="no file"):
        refuse_if("a problem", "no file", DataError)


def test_unknown_names_are_refused_with_the_nearest_ones():
    require_known("adam", ("adam", "sgd"), "There is no such optimizer.")
    assert pick({"adam": 1}, "adam", "There is no such optimizer.") == 1
    with pytest.raises(DataError, match=r"^There is no 'adm'\. Did you mean adam\?$"):
        require_known("adm", ("adam", "sgd"), "There is no 'adm'.", DataError)


def test_the_door_has_what_loads_torch_and_loads_it_when_it_is_asked_for():
    import skiplens.base.axes
    import skiplens.base.memory

    assert skiplens.base.budget_bytes is skiplens.base.memory.budget_bytes
    assert skiplens.base.Float is skiplens.base.axes.Float
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        _ = skiplens.base.no_such_name
    program = "import sys, skiplens.base; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
