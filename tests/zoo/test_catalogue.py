import pytest

from skiplens import zoo
from skiplens.base.errors import ModelSpecError, SettingsError

REQUIRED = """preact_resnet18 preact_resnet18_avgskip preact_resnet50 preact_resnet50_avgskip preact_resnet mnist_chain
mnist_residual mnist_residual_avgpool tangent_resnet tangent_densenet tangent_vanilla shortcut_linear shortcut_network
plain_network ensemble_resnet normalised_resnet guaranteed_resnet""".split()

STUDIES = {"littwin2016_ensembles", "li2016_shortcuts", "macdonald2023_regularity", "littwin2020_tangent", "skiplens"}


def test_has_the_networks_of_the_papers():
    assert set(REQUIRED) <= set(zoo.names())
    assert len(zoo.names()) == len(set(zoo.names()))


@pytest.mark.parametrize("name", zoo.names())
def test_entries_say_what_they_are(name):
    entry = zoo.entry(name)
    assert entry.name == name and entry.study in STUDIES and len(entry.description) > 10
    assert all(size >= 1 for size in entry.example_input_shape)


def test_default_is_the_small_network_for_digits():
    assert zoo.entry("default") is zoo.entry(zoo.DEFAULT)
    assert zoo.entry("default").example_input_shape == (1, 28, 28)


def test_unknown_name_offers_the_nearest():
    with pytest.raises(ModelSpecError, match=r"no network 'tangent_resent'. Did you mean tangent_resnet"):
        zoo.build("tangent_resent")


def test_unknown_option_offers_the_nearest():
    with pytest.raises(SettingsError, match=r"zoo:tangent_resnet: .*no setting 'dept'. Did you mean depth"):
        zoo.build("tangent_resnet", dept=3)


def test_wrong_value_says_what_was_wanted():
    with pytest.raises(SettingsError, match=r"zoo:tangent_resnet: .*depth must be int; got 'deep'"):
        zoo.build("tangent_resnet", depth="deep")


def test_value_below_its_limit_is_refused():
    with pytest.raises(SettingsError, match=r"zoo:tangent_resnet: .*depth must be at least 1; got 0"):
        zoo.build("tangent_resnet", depth=0)


def test_seed_that_is_no_number_is_refused():
    with pytest.raises(SettingsError, match="zoo:shortcut_linear: seed must be int; got 'many'"):
        zoo.build("shortcut_linear", "many")


def test_text_values_are_parsed():
    network = zoo.build("tangent_resnet", "1", depth="2", branch_scale="0.5", width="4")
    assert len(network.blocks) == 2 and network.first.out_features == 4


class TestText:
    def test_names_network_options_and_seed(self):
        assert zoo.parse("tangent_resnet, depth=10,branch-scale=0.3") == (
            "tangent_resnet",
            {"depth": "10", "branch_scale": "0.3"},
        )
        network = zoo.build_from_text("shortcut_linear,units=2,width=3,seed=5")
        assert network[1].branch[0].weight.equal(zoo.build("shortcut_linear", 5, units=2, width=3)[1].branch[0].weight)

    def test_a_part_without_equals_continues_the_value(self):
        network = zoo.build_from_text("normalised_resnet,widths=6,5,4,3,hidden=4")
        assert [tuple(p.shape) for p in network.parameters()] == [(5, 6), (4, 5), (4, 4), (4, 4), (3, 4)]

    def test_a_part_without_option_is_an_error(self):
        with pytest.raises(ModelSpecError, match="'10' in 'tangent_resnet,10' has no '='"):
            zoo.build_from_text("tangent_resnet,10")
