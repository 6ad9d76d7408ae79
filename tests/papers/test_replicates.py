from dataclasses import dataclass

import torch

from skiplens.base.settings import option
from skiplens.papers.statistics import ReplicateSettings, replicated


@dataclass(frozen=True)
class Probe(ReplicateSettings):
    depth: int = option(1, "layers")


def test_every_combination_is_repeated_and_replicates_are_neighbours():
    runs = replicated("package.module:probe", Probe(), 2, 7, cost=lambda probe: probe.depth, depth=(3, 5))
    assert [(run.settings.depth, run.settings.replicate, run.settings.seed) for run in runs] == [
        (3, 0, 7),
        (3, 1, 7),
        (5, 0, 7),
        (5, 1, 7),
    ]
    assert [run.cost for run in runs] == [3, 3, 5, 5]
    assert len({run.key for run in runs}) == 4


def test_the_settings_name_the_stream():
    def draw(**settings: int) -> torch.Tensor:
        return torch.randn(3, generator=Probe(**settings).stream())

    assert torch.equal(draw(), draw())
    for other in ({"replicate": 1}, {"seed": 1}, {"depth": 2}):
        assert not torch.equal(draw(), draw(**other))


def test_runs_of_a_replicate_share_named_streams():
    def draw(name: str, **settings: int) -> torch.Tensor:
        return torch.randn(3, generator=Probe(**settings).shared_stream(name))

    assert torch.equal(draw("data"), draw("data", depth=2))
    for other in ({"replicate": 1}, {"seed": 1}):
        assert not torch.equal(draw("data"), draw("data", **other))
    assert not torch.equal(draw("data"), draw("signs"))
