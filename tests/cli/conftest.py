import sys

import pytest

from skiplens.cli.main import main


@pytest.fixture
def ran(monkeypatch, capfd):
    """The command as a user types it: exit status, standard output and standard error."""

    def command(*words) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["skiplens", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        return int(end.value.code or 0), *capfd.readouterr()

    return command
