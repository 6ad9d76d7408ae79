import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
import webbrowser

import pytest

from skiplens.explorer import serve


@pytest.mark.slow
def test_the_command_prints_its_link_answers_and_ends_with_ctrl_c(tmp_path):
    # A shell's background job ignores the interrupt, and what it starts does too: the tests may be one.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    words = [sys.executable, "-c", f"{heard}; from skiplens.cli.main import main; main()"]
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


@pytest.fixture
def opened(monkeypatch):
    """The links that a browser was opened with; the explorer does not answer, and waits for the browser instead."""
    links, before = [], set(threading.enumerate())

    def serve_nothing(self):
        self.server.server_close()
        for thread in set(threading.enumerate()) - before:
            thread.join()

    monkeypatch.setattr(webbrowser, "open", lambda link: links.append((link, threading.current_thread().daemon)))
    monkeypatch.setattr(serve.Explorer, "serve", serve_nothing)
    return links


@pytest.mark.parametrize(
    ("flags", "count"), [((), 1), (("--no-browser",), 0), (("--host", "0.0.0.0"), 0), (("--host", "localhost"), 1)]
)
def test_a_browser_is_opened_unless_it_is_not_wanted_or_would_show_the_token(ran, opened, flags, count):
    status, out, _ = ran("explore", "--port", "0", *flags)
    assert status == 0 and len(opened) == count
    assert all(link in out and is_daemon for link, is_daemon in opened)


def test_a_browser_that_does_not_return_does_not_keep_the_page_from_answering(monkeypatch, ran):
    waiting, served = threading.Event(), []

    def serve_while_it_waits(self):
        self.server.server_close()
        served.append(not waiting.is_set())
        waiting.set()

    monkeypatch.setattr(webbrowser, "open", lambda link: waiting.wait())
    monkeypatch.setattr(serve.Explorer, "serve", serve_while_it_waits)
    status, _, _ = ran("explore", "--port", "0")
    assert status == 0 and served == [True]


def test_where_others_can_reach_it_the_name_of_the_machine_is_in_a_second_link(monkeypatch, ran, opened):
    monkeypatch.setattr(socket, "gethostname", lambda: "workstation")
    _, out, _ = ran("explore", "--port", "0", "--host", "0.0.0.0")
    own, elsewhere = re.findall(r"http://\S+", out)
    assert own.startswith("http://127.0.0.1:") and elsewhere == own.replace("127.0.0.1", "workstation")
    assert "?token=" in own
    _, out, _ = ran("explore", "--port", "0", "--no-browser")
    assert out.count("http://") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("no/such/folder",), "no/such/folder is not a folder"),
        (("--port", "70000"), "70000 is no port"),
        (("--host", "192.0.2.1"), "cannot listen at 192.0.2.1"),
        (("--host", ""), "--host is empty; leave it out for this machine alone"),
        (("--host", "[]"), "--host is empty; leave it out for this machine alone"),
    ],
)
def test_bad_input_is_one_sentence(ran, words, message):
    status, _, errors = ran("explore", "--no-browser", *words)
    assert status == 2 and message in errors and "Traceback" not in errors
