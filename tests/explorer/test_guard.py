import pytest

from skiplens.explorer.guard import Guard, Visitor, is_loopback, new_token


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "::1", "[::1]"])
def test_addresses_of_this_machine(host):
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "192.168.1.2", "example.org", "::", "127.0.0.1.example.org", "", "localhost.example.org"]
)
def test_addresses_that_others_can_reach(host):
    assert not is_loopback(host)


@pytest.mark.parametrize("host", ["127.0.0.1:8050", "localhost:8050", "localhost", "[::1]:8050"])
def test_on_loopback_this_machine_is_let_in(host):
    assert Guard("127.0.0.1", 8050).refusal(Visitor(host)) == ""


@pytest.mark.parametrize("host", ["evil.example:8050", "127.0.0.1.evil.example", "", "[", "localhost@evil.example"])
def test_on_loopback_a_strangers_name_is_refused(host):
    assert "does not answer to the name" in Guard("127.0.0.1", 8050).refusal(Visitor(host))


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_other_pages_may_link_to_the_start_and_nothing_else(site):
    guard = Guard("127.0.0.1", 8050)
    assert "Another web page" in guard.refusal(Visitor("localhost", site, "no-cors", path="/"))
    assert "Another web page" in guard.refusal(Visitor("localhost", site, "cors", path="/"))
    assert guard.refusal(Visitor("localhost", site, "navigate", path="/")) == ""
    for path in ("/paths", "/export/paths/path_weights.csv", "/files", "//", ""):
        assert "Another web page" in guard.refusal(Visitor("localhost", site, "navigate", path=path))


@pytest.mark.parametrize("site", ["same-origin", "none", ""])
@pytest.mark.parametrize("mode", ["navigate", "cors", "no-cors"])
def test_the_page_itself_and_the_address_bar_get_everything(site, mode):
    assert Guard("127.0.0.1", 8050).refusal(Visitor("localhost", site, mode, path="/export/paths/a.csv")) == ""


def test_elsewhere_the_token_is_asked_for():
    guard = Guard("0.0.0.0", 8050, "secret")
    assert "asks for its token" in guard.refusal(Visitor("machine:8050"))
    assert "asks for its token" in guard.refusal(Visitor("machine:8050", token="secre", cookie="secrets"))
    assert guard.refusal(Visitor("machine:8050", token="secret")) == ""
    assert guard.refusal(Visitor("machine:8050", cookie="secret")) == ""


def test_words_that_are_no_ascii_are_no_token():
    assert not Guard("0.0.0.0", 8050, "secret").knows("sécret")


def test_no_token_is_not_the_empty_one():
    assert not Guard("127.0.0.1", 8050).knows("")


def test_the_token_is_random_long_and_not_shown():
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100 and min(map(len, tokens)) >= 32
    assert "secret" not in repr(Guard("0.0.0.0", 8050, "secret"))
