import socket
import threading
import urllib.error
import urllib.request

import pytest

from skiplens.base import optional_imports
from skiplens.base.errors import InvalidInputError, MissingDependencyError, SkiplensError
from skiplens.explorer.serve import DEFAULT_PORT, explorer


@pytest.fixture
def served():
    pages = []

    def start(*arguments, **options):
        page = explorer(*arguments, **options)
        threading.Thread(target=page.serve, daemon=True).start()
        pages.append(page)
        return page

    yield start
    for page in pages:
        page.close()


def test_it_answers_on_this_machine_without_a_token(served, capfd):
    page = served(port=0)
    assert page.link.startswith("http://127.0.0.1:") and "token" not in page.link
    with urllib.request.urlopen(page.link) as answer:
        assert "Skiplens explorer" in answer.read().decode()
    assert capfd.readouterr() == ("", "")  # no line for each request


def test_elsewhere_it_asks_for_the_token_that_is_in_the_link(served):
    page = served(host="0.0.0.0", port=0)
    place, _, token = page.link.partition("?token=")
    assert place.startswith("http://127.0.0.1:") and len(token) >= 32
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(place)
    with urllib.request.urlopen(page.link) as answer:
        assert "SameSite=Strict" in answer.headers["Set-Cookie"]


def test_the_next_free_port_is_taken(served):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SkiplensError, match=f"Port {port} of 127.0.0.1 is in use by another program"):
            explorer(port=port)
    first, second = served(), served()
    assert first.guard.port != second.guard.port and min(first.guard.port, second.guard.port) >= DEFAULT_PORT


def test_where_all_ports_are_taken_it_says_so(monkeypatch):
    monkeypatch.setattr("skiplens.explorer.serve._NEXT_PORTS", 0)
    with pytest.raises(SkiplensError, match="Name a free one: skiplens explore --port"):
        explorer()


def test_an_ipv6_address_is_written_in_brackets(served):
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    page = served(host="::1", port=0)
    assert page.link.startswith("http://[::1]:") and "token" not in page.link
    with urllib.request.urlopen(page.link) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("port", [-1, 2**16])
def test_a_number_that_is_no_port_is_refused(port):
    with pytest.raises(InvalidInputError, match="is no port; give a number from 1 to 65535"):
        explorer(port=port)


def test_an_address_that_is_not_of_this_machine_is_refused():
    with pytest.raises(InvalidInputError, match=r"cannot listen at 192.0.2.1, port 0: .* Leave --host out"):
        explorer(host="192.0.2.1", port=0)


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="is not a folder"):
        explorer(tmp_path / "none", port=0)


def test_without_dash_it_says_how_to_get_it(monkeypatch):
    def missing(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(optional_imports.importlib, "import_module", missing)
    with pytest.raises(MissingDependencyError, match=r"pip install 'skiplens\[explorer\]'"):
        explorer(port=0)
