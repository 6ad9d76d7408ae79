import pytest


@pytest.fixture(autouse=True)
def own_surroundings(monkeypatch, tmp_path):
    """No test sees the data folder, the cache or the proxy of whoever runs it; hosts of tests have no certificate."""
    from skiplens.data import download

    monkeypatch.setattr(download, "_FOLLOWED", ("https://", "http://127.0.0.1:"))
    monkeypatch.delenv("SKIPLENS_DATA", raising=False)
    monkeypatch.setenv("SKIPLENS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def known(monkeypatch):
    """Puts data sets into the catalogue for the length of a test."""
    from skiplens.data.catalogue import CATALOGUE

    def put(*data_sets):
        for data_set in data_sets:
            monkeypatch.setitem(CATALOGUE, data_set.name, data_set)
        return data_sets[0]

    return put
