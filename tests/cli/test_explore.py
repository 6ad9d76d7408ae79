import re
import signal
import subprocess
import sys
import urllib.request
import webbrowser

import pytest

from skiplens.explorer import serve


def test_the_command_prints_its_link_answers_and_ends_with_ctrl_c(tmp_path):
    words = [sys.executable, "-c", "from skiplens.cli.main import main; main()"]
    command = [*words, "explore", str(tmp_path), "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            link = re.search(r"http://127\.0\.0\.1:\d+/", line)[0]
            with urllib.request.urlopen(link) as answer:
                assert answer.status == 200
        finally:
            process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == 0 and "The explorer has ended." in errors and "Traceback" not in errors


@pytest.mark.parametrize(("flags", "opened"), [((), 1), (("--no-browser",), 0)])
def test_a_browser_is_opened_unless_it_is_not_wanted(monkeypatch, ran, flags, opened):
    links = []
    monkeypatch.setattr(webbrowser, "open", links.append)
    monkeypatch.setattr(serve.Explorer, "serve", lambda self: self.server.server_close())
    status, out, _ = ran("explore", "--port", "0", *flags)
    assert status == 0 and len(links) == opened
    assert all(link in out for link in links)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("no/such/folder",), "no/such/folder is not a folder"),
        (("--port", "70000"), "70000 is no port"),
        (("--host", "192.0.2.1"), "cannot listen at 192.0.2.1"),
    ],
)
def test_bad_input_is_one_sentence(ran, words, message):
    status, _, errors = ran("explore", "--no-browser", *words)
    assert status == 2 and message in errors and "Traceback" not in errors
