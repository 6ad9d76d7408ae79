"""Our own experiment with noisy labels: its draws, its claims on made-up readings, and what is kept of it."""

import json
from dataclasses import replace

import pytest
import torch
from results.label_noise import study
from results.label_noise.study import CLAIMS, LABELS, NOISE, Noisy, learnt, noisy, runs

from skiplens.readings.reading import Measurement, Provenance


def test_so_many_labels_are_drawn_from_all_classes():
    labels = torch.arange(10_000) % 10
    one, other, none = (
        noisy(labels, Noisy(noise=share), torch.Generator().manual_seed(0)) for share in (0.4, 0.2, 0.0)
    )
    assert bool((none == labels).all())
    changed = (one != labels).double().mean()
    assert float(changed) == pytest.approx(0.4 * 0.9, abs=4 * (0.36 * 0.64 / 10_000) ** 0.5)
    assert bool(((other == labels) | (other == one)).all())  # more noise changes what less noise did, and more
    assert set(one.tolist()) == set(range(10))


def test_both_networks_of_a_replicate_learn_the_same_labels_and_differ(monkeypatch):
    seen = []
    whole = study.train
    monkeypatch.setattr(study, "train", lambda *given: seen.append(given) or whole(*given))
    settings = Noisy(noise=0.4, epochs=1)
    found = [learnt(one) for one in (settings, replace(settings, modified=True), replace(settings, replicate=1))]
    (_, first, recipe), (_, second, other), (_, third, _) = seen
    assert bool((first.targets == second.targets).all()) and recipe == other
    assert not bool((first.targets == third.targets).all())
    assert found[0]["loss"].shape == (1,) and found[0]["loss"] != found[1]["loss"]
    squares = sum(float(parameter.detach().square().sum()) for parameter in seen[0][0].parameters())
    assert float(found[0]["norm"]) == pytest.approx(squares**0.5, rel=1e-5)


def made_up(gain: float, of_noise: float) -> list[Measurement]:
    """Readings in which the modified network ends exp(gain) lower, and exp(of_noise) higher on noisy labels."""
    generator, readings = torch.Generator().manual_seed(0), []
    for run in runs("laptop", 0):
        own = run.settings
        change = (of_noise if own.noise else 0.0) - gain if own.modified else 0.0
        loss = torch.tensor([1.0, 0.1]) * (change + 0.01 * torch.randn((), generator=generator)).exp()
        arrays = {"loss": loss.double(), "norm": torch.tensor(10.0 - 0.1 * own.modified).double()}
        provenance = Provenance.begin(own.to_json(), 0, "cpu").end()
        readings.append(Measurement(name=run.measure, arrays=arrays, provenance=provenance))
    return readings


@pytest.mark.parametrize(
    ("gain", "of_noise", "words"),
    [
        (0.5, 0.2, ["reproduced"] * 4 + ["reproduced"]),
        (-0.5, -0.2, ["opposite"] * 4 + ["opposite"]),
        (0.2, 0.4, ["reproduced", "opposite"] * 2 + ["reproduced"]),
    ],
)
def test_claims_say_what_the_readings_do(gain, of_noise, words):
    readings = made_up(gain, of_noise)
    judged = {claim.name: claim.judge(readings) for claim in CLAIMS}
    names = [f"lower_{labels}_{noise}" for labels in LABELS for noise in NOISE]
    assert [judged[name].verdict for name in (*names, "noise")] == words
    assert judged["lower_fine_clean"].ours == pytest.approx(-gain, abs=0.02)
    assert judged["norm"].verdict == "reproduced" and study.figures(readings)


def test_what_is_kept_is_what_its_readings_say():
    """If not: python -m results.label_noise.study."""
    kept = json.loads(study.PLACE.read_text("utf-8"))
    found = study.judged()
    assert not found.results[0].problems and found.results[0].figures
    for one, entry in zip(found.verdicts, kept, strict=True):
        again = json.loads(json.dumps(one.to_json()))
        for name in ("ours", "uncertainty"):
            assert again.pop(name) == pytest.approx(entry.pop(name), rel=1e-9)
        assert again == entry
