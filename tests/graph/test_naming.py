from skiplens.graph.blocks import Surroundings, common_calls, unique_names


def held(join: str, *branch: str) -> Surroundings:
    """A join in the module `join` (its calls separated by spaces) with a branch through these calls."""
    calls = tuple(("", *path.split()) for path in branch)
    return Surroundings(("", *join.split()), calls, calls, "add")


def test_names_a_block_by_the_module_that_holds_it():
    names = unique_names([held("a", "a a.f", "a a.g"), held("b", "b b.f")])
    assert names == ["a", "b"]


def test_names_blocks_of_one_module_by_what_tells_them_apart():
    names = unique_names([held("a", "a a.norm1", "a a.attention"), held("a", "a a.norm2", "a a.mlp a.mlp.0")])
    assert names == ["a.attention", "a.mlp"]


def test_names_blocks_of_the_model_itself_by_their_branches():
    assert unique_names([held("", "layers.0"), held("", "layers.1")]) == ["layers.0", "layers.1"]


def test_numbers_the_runs_of_one_module():
    assert unique_names([held("a", "a a.f"), held("a@1", "a@1 a.f@1"), held("a@2", "a@2 a.f@2")]) == ["a", "a@2", "a@3"]


def test_does_not_give_a_neighbours_name_away():
    inner, outer = held("", "g"), held("", "f", "g")
    assert unique_names([inner, outer]) == ["g", "f"]


def test_falls_back_to_the_node_of_the_join():
    bare = Surroundings(("",), (), (), "add_3")
    assert unique_names([bare]) == ["add_3"]
    assert unique_names([Surroundings(("", "a"), (), (), "add_1"), Surroundings(("", "a"), (), (), "add_2")]) == [
        "a.add_1",
        "a.add_2",
    ]


def test_common_calls_are_the_shared_beginning():
    assert common_calls([("", "a", "b"), ("", "a"), ("", "a", "c")]) == ("", "a")
    assert common_calls([]) == ()
