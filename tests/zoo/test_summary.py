import pytest

from skiplens import zoo

# name: parameters, depth, joins; counted by hand from the theory notes (the first two of ResNet-18 and of the CIFAR
# ResNet are printed there).
KNOWN = {
    "ensemble_resnet": (20 * 64 + 9 * 64**2 + 64 * 50 + 50, 11, 9),
    "shortcut_linear": (16 * 100, 16, 8),
    "plain_network": (16 * 100, 16, 0),
    "preact_resnet": (561_370, 38, 18),
    "normalised_resnet": (26_272, 5, 2),
    "guaranteed_resnet": (26_272, 5, 2),
    "mnist_chain": (130 + 2 * 630 + 920 + 3620 + 3210 + 2 * (5 + 5 + 5 + 20 + 320), 6, 0),
    "mnist_residual": (130 + 2 * 630 + 920 + 3620 + 3210 + 120 + 2 * (5 + 5 + 5 + 20 + 320), 6, 2),
    "preact_resnet18": (11_171_146, 18, 8),
    "preact_resnet18_avgskip": (11_171_146, 18, 8),
    "tangent_resnet": (10 * 128 + 20 * 128**2 + 128, 22, 10),
    "tangent_densenet": (10 * 128 + 55 * 128**2 + 128, 12, 0),
    "tangent_vanilla": (10 * 128 + 10 * 128**2 + 128, 12, 0),
}


@pytest.fixture(scope="module")
def rows() -> dict[str, zoo.Row]:
    return {row.name: row for row in zoo.summary()}


def test_lists_every_network_with_what_its_entry_says(rows):
    assert list(rows) == zoo.names()
    for name, row in rows.items():
        entry = zoo.entry(name)
        assert (row.input_shape, row.paper, row.description) == (
            entry.example_input_shape,
            entry.study,
            entry.description,
        )


@pytest.mark.parametrize("name", KNOWN)
def test_sizes(rows, name):
    assert (rows[name].parameters, rows[name].depth, rows[name].joins) == KNOWN[name]


@pytest.mark.parametrize("name", ["preact_resnet50", "preact_resnet50_avgskip"])
def test_resnet50_has_50_layers_and_16_blocks(rows, name):
    assert (rows[name].depth, rows[name].joins) == (50, 16)


def test_default_network_is_small(rows):
    row = rows[zoo.DEFAULT]
    assert row.parameters < 200_000 and 6 <= row.joins <= 8
