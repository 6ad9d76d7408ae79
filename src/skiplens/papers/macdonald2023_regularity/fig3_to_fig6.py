"""Figures 3 to 6 and tables 1 to 3: training speed, final losses and accuracies, decided over pairs of networks."""

import json
import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import torch

from skiplens.papers.macdonald2023_regularity import images
from skiplens.papers.macdonald2023_regularity.common import figure
from skiplens.papers.macdonald2023_regularity.images import SHOWN, Data, final_loss, not_comparable, of_data, of_length
from skiplens.papers.statistics import Band, Readings, curve, decide_correction, over_seeds, over_trials, raw_tables
from skiplens.papers.study import Claim, Item, Judgement, Preset, Table, claim, claims
from skiplens.plots.figure import Band as figure_Band
from skiplens.plots.figure import Figure, Line, Points, colour, numbers
from skiplens.sweeps.run import Run


class Row(NamedTuple):
    """Test accuracy in per cent and final loss: the original's number and deviation, then the modified network's."""

    accuracy: tuple[float, float, float, float]
    loss: tuple[float, float, float, float]


TABLES: dict[str, dict[float, Row]] = {
    data: {float(rate): Row(*map(tuple, row)) for rate, row in rows.items()}
    for data, rows in json.loads(Path(__file__).with_name("tables.json").read_text("utf-8")).items()
}
"""By data set and learning rate; on ImageNet at 0.2 the modified network did not converge."""

DEVIATIONS = 3.0  # a printed number is met within so many of its printed standard deviations
SAME_ACCURACY = 0.0061
"""Accuracies that differ by less are the same: the largest printed deviation at learning rate 0.1."""

SAME_LOSS, OTHER_LOSS = 1.1, 1.5
"""Largest over smallest final loss of four learning rates: as table 2 prints them, and if they really differ."""

NOT_CONVERGED: dict[Data, float] = {"cifar10": 0.5, "cifar100": 0.5, "imagenet": 2.0}
"""A final loss above this has not converged: those that did are below 0.02 on CIFAR and below 1.1 on ImageNet."""

NAMES: dict[Data, str] = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "imagenet": "ImageNet"}
_LOWER, _HIGHER = Band(-math.inf, 0.0), Band(0.0, math.inf)


def _judge_speed(readings: Readings, data: Data, rate: float) -> Judgement:
    sentence = (
        f"Mean over epochs of ln(loss), modified minus original, {NAMES[data]}, learning rate {rate:g}; faster means "
        "negative."
    )
    return _judge_pairs(readings, (data, rate), images.mean_log_loss, _LOWER, sentence, all_epochs=False)


def _judge_final(readings: Readings, data: Data, rate: float) -> Judgement:
    original, _, modified, _ = TABLES[data][rate].loss
    sentence = (
        f"ln(final loss), modified minus original, learning rate {rate:g}; the table prints "
        f"{math.log(modified / original):+.2f}."
    )
    band = _LOWER if modified < original else _HIGHER
    return _judge_pairs(readings, (data, rate), images.log_final_loss, band, sentence, all_epochs=False)


def _judge_cells(readings: Readings, data: Data, rate: float) -> Judgement:
    chosen = of_length(of_data(readings, data, learning_rate=rate), True)
    sentence = f"Final losses in printed standard deviations from the printed ones, learning rate {rate:g}."
    printed, problem = TABLES[data][rate].loss, not_comparable(chosen, data, True)
    original, modified = (
        {r.setting("replicate"): (final_loss(r) - number) / deviation for r in chosen if r.setting("modified") == flag}
        for flag, number, deviation in ((False, *printed[:2]), (True, *printed[2:]))
    )
    pairs = [(original[trial], modified[trial]) for trial in sorted(original.keys() & modified.keys())]
    values = torch.tensor(pairs, dtype=torch.float64).reshape(-1, 2)
    return images.judged(values[torch.isfinite(values).all(1)], Band.around(0.0, DEVIATIONS), sentence, problem)


def _judge_accuracy(readings: Readings, data: Data) -> Judgement:
    rate = SHOWN[data]
    sentence = (
        f"Test accuracy, modified minus original, learning rate {rate:g}, with the statistics of test batches as in "
        "the authors' program."
    )
    return _judge_pairs(readings, (data, rate), images.accuracy, Band.around(0.0, SAME_ACCURACY), sentence)


@claim("Section 6.3", "74.62 → 74.84 %")
def _accuracy(readings: Readings) -> Judgement:
    """The modified version had significantly better validation accuracy."""
    sentence = "Validation accuracy, modified minus original; the table's differences have p = 0.05, 0.11 and 0.27."
    return _judge_pairs(readings, ("imagenet", SHOWN["imagenet"]), images.accuracy, _HIGHER, sentence)


def _judge_pairs(
    readings: Readings,
    place: tuple[Data, float],
    number: images.Number,
    band: Band,
    sentence: str,
    all_epochs: bool = True,
) -> Judgement:
    """Whether modified minus original lies in a band, on a data set at a learning rate."""
    data, rate = place
    of_place = of_data(readings, data, learning_rate=rate)
    chosen, whole = of_length(of_place, all_epochs), of_length(of_place, True)
    if chosen and not all_epochs:
        sentence += f" After {chosen[0].setting('epochs')} epochs."
    if len(chosen) < len(of_place) and not all_epochs and not not_comparable(whole, data, True):
        with_all = images.judged(images.differences(whole, number), band, "", "")
        sentence += f" With all epochs: {with_all.verdict}" + (f", {with_all.ours:.3g}." if with_all.ours else ".")
    return images.judged(images.differences(chosen, number), band, sentence, not_comparable(chosen, data, all_epochs))


def _judge_unstable(readings: Readings, data: Data, modified: bool) -> Judgement:
    chosen = of_length(
        [r for r in of_data(readings, data, learning_rate=0.2) if r.setting("modified") == modified], False
    )
    failed = torch.tensor([not final_loss(r) < NOT_CONVERGED[data] for r in chosen])
    share = 0.6 if data == "cifar10" else 1.0
    sentence = (
        f"Share of networks that did not converge at learning rate 0.2 (final loss above {NOT_CONVERGED[data]:g})."
    )
    return images.judged(failed, Band.around(share, 0.3), sentence, not_comparable(chosen, data, False), over_trials)


@claim("Table 2", "0.0145 to 0.0150")
def _learning_rates(readings: Readings) -> Judgement:
    """The final losses hardly depend on the learning rate."""
    chosen = of_data(readings, "cifar100", modified=False)
    problem = not_comparable(chosen, "cifar100", True)
    sentence = (
        "Largest over smallest final loss of the four learning rates, original network: 1.03 in table 2, because the "
        "authors' program trains all four rows at 0.1; 3.5 on CIFAR-10, where the rates are used."
    )
    trials = sorted({r.setting("replicate") for r in chosen})
    losses = [[final_loss(r) for r in chosen if r.setting("replicate") == trial] for trial in trials]
    ratios = torch.tensor([max(row) / min(row) for row in losses], dtype=torch.float64)
    if problem or len(ratios) < images.FEW:
        return images.judged(ratios, Band(1.0, SAME_LOSS), sentence, problem)
    found = over_seeds(ratios)
    return decide_correction((found, Band(1.0, SAME_LOSS)), (found, Band(OTHER_LOSS, math.inf)), sentence)


def _speeds(data: Data, place: str) -> tuple[Claim, ...]:
    return claims(_judge_speed, *(_speed(f"rate_{_word(rate)}", place, data, rate) for rate in TABLES[data]))


def _speed(name: str, place: str, data: Data, rate: float) -> tuple[str, str, str, str, Data, float]:
    statement = f"On {NAMES[data]} the modified network trains faster at learning rate {rate:g}."
    return name, statement, place, "lower loss", data, rate


def _word(rate: float) -> str:
    return f"{rate:g}".replace(".", "_")


def _finals(data: Data, place: str) -> tuple[Claim, ...]:
    """For every learning rate that converged: the sign of the change, and both numbers."""
    found: list[Claim] = []
    for rate, row in TABLES[data].items():
        original, deviation, modified, other_deviation = row.loss
        if original > NOT_CONVERGED[data]:
            continue
        word = "lower" if modified < original else "higher"
        change = f"The modified network's final loss is {word} at learning rate {rate:g}."
        both = f"{original:.4f} ± {deviation:.4f}, {modified:.4f} ± {other_deviation:.4f}"
        sign = (f"final_loss_{_word(rate)}", change, place, f"{original:.4f} → {modified:.4f}")
        cells = (f"values_{_word(rate)}", f"The final losses at learning rate {rate:g}.", place, both)
        found += claims(_judge_final, (*sign, data, rate)) + claims(_judge_cells, (*cells, data, rate))
    return tuple(found)


_SAME = "Validation accuracies were not significantly different between the two models."
_SAME10, _SAME100 = claims(
    _judge_accuracy, *(("accuracy", _SAME, "Section 6.3", "no difference", data) for data in ("cifar10", "cifar100"))
)
_NONE_OF_3 = "The modified architecture did not converge at the maximum learning rate of 0.2."
_SIX_OF_10 = "At learning rate 0.2 training diverged 6 out of 10 times on the original network."
_MODIFIED_FAILS, _ORIGINAL_FAILS = claims(
    _judge_unstable,
    ("unstable", _NONE_OF_3, "Figure 6", "none of 3", "imagenet", True),
    ("unstable", _SIX_OF_10, "Appendix C", "6 of 10", "cifar10", False),
)
FIG3 = claims(_judge_speed, *(_speed(data, "Figure 3", data, rate) for data, rate in SHOWN.items()))
FIG4, FIG5 = _speeds("cifar10", "Figure 4, hypothesis 6.1"), _speeds("cifar100", "Figure 5, hypothesis 6.1")
FIG6 = (*_speeds("imagenet", "Figure 6"), _MODIFIED_FAILS)
TABLE1 = (*_finals("cifar10", "Table 1"), _SAME10, _ORIGINAL_FAILS)
TABLE2 = (*_finals("cifar100", "Table 2"), _SAME100, _learning_rates)
TABLE3 = (*_finals("imagenet", "Table 3"), _accuracy)

SERIES = ((False, "original: convolutional shortcuts"), (True, "modified: average pool + convolution"))


def shown_curves(readings: Readings) -> tuple[Figure, ...]:
    """Figure 3: each data set at the learning rate that suits the original network best."""
    return tuple(
        _figure(chosen, data, rate, "Figure 3")
        for data, rate in SHOWN.items()
        if (chosen := of_data(readings, data, learning_rate=rate))
    )


def rate_curves(readings: Readings, data: Data, name: str) -> tuple[Figure, ...]:
    """Figures 4 to 6: one data set at all learning rates."""
    rates = sorted({reading.setting("learning_rate") for reading in readings}, reverse=True)
    return tuple(_figure(of_data(readings, data, learning_rate=rate), data, rate, name) for rate in rates)


def final_losses(readings: Readings, data: Data, name: str) -> tuple[Figure, ...]:
    """Tables 1 to 3 as a figure: final loss against learning rate."""
    if not readings:
        return ()
    rates = sorted({reading.setting("learning_rate") for reading in readings})
    points, lines = [], []
    for number, (modified, label) in enumerate(SERIES):
        by_rate = [of_length(of_data(readings, data, learning_rate=rate, modified=modified), False) for rate in rates]
        found = [images.mean_and_deviation([final_loss(reading) for reading in chosen]) for chosen in by_rate]
        means, deviations = (numbers(column) for column in zip(*found, strict=True))
        points.append(Points(numbers(rates), means, label, deviations))
        lines.append(Line(numbers(rates), means, colour=colour(number)))
    words = f"{data}_final_loss", f"{name}: final training loss, {_trained_on(readings, data)}"
    caption = "Mean loss of the last epoch, with one standard deviation over trials."
    labels, log = ("learning rate", "loss of the last epoch"), "xy" if _spread(lines) else "x"
    return (figure(words, caption, labels, (*points, *lines), log),)


def _figure(readings: Readings, data: Data, rate: float, name: str) -> Figure:
    marks: list[figure_Band | Line] = []
    for number, (modified, label) in enumerate(SERIES):
        losses = torch.stack([r["epoch_loss"] for r in of_length(readings, False) if r.setting("modified") == modified])
        marks += curve(torch.arange(1, losses.shape[1] + 1), losses, label, number)
    trials = len({reading.setting("replicate") for reading in readings})
    words = f"{data}_rate_{_word(rate)}", f"{name}: {_trained_on(readings, data)}, learning rate {rate:g}"
    caption = (
        f"Mean training loss of each epoch over {trials} trials, with one standard deviation shaded. Both "
        "networks of a trial start from the same weights and see the same batches."
    )
    return figure(words, caption, ("epoch", "training loss"), marks, "y" if _spread(marks) else "")


def _spread(marks: Sequence[figure_Band | Line]) -> bool:
    """Whether losses spread so far that an axis wants to be logarithmic."""
    heights = [height for mark in marks if isinstance(mark, Line) for height in mark.y if height > 0]
    return bool(heights) and max(heights) > 5 * min(heights)


def _trained_on(readings: Readings, data: Data) -> str:
    """The network and its data set, or what stands in for it."""
    network, one = "ResNet-50" if data == "imagenet" else "ResNet-18", readings[0]
    if one.setting("data") != data:
        return f"{network} on digits in place of {NAMES[data]}"
    part = "" if one.setting("images") is None else f"{one.setting('images')} images of "
    return f"{network} on {part}{NAMES[data]}"


def tables(readings: Readings) -> tuple[Table, ...]:
    """Every run epoch by epoch, and means over trials with the printed numbers; none where there are no runs."""
    if not readings:
        return ()
    rows = []
    for data in images.CLASSES:
        rates = sorted({r.setting("learning_rate") for r in of_data(readings, data)}, reverse=True)
        for rate, modified in product(rates, (False, True)):
            chosen = of_length(of_data(readings, data, learning_rate=rate, modified=modified), False)
            place = {"data": data, "learning_rate": rate, "modified": modified, "trials": len(chosen)}
            printed = TABLES[data].get(rate)
            beside = {
                "printed_final_loss": printed and printed.loss[2 * modified],
                "printed_accuracy": printed and printed.accuracy[2 * modified] / 100,
            }
            rows.append({**place, **_summary(chosen), **beside})
    return (*raw_tables(readings), Table("means", tuple(rows)))


def _summary(readings: Readings) -> dict[str, float | int]:
    columns = {
        "final_loss": [final_loss(reading) for reading in readings],
        "accuracy_batch_statistics": [images.accuracy(reading) for reading in readings],
        "accuracy": [float(reading["accuracy"]) for reading in readings],
    }
    found: dict[str, float | int] = {"diverged": sum(map(math.isnan, columns["final_loss"]))}
    for name, column in columns.items():
        found[name], found[f"{name}_deviation"] = images.mean_and_deviation(column)
    return found


PRECISION = "On a GPU the passes are in bfloat16 with weights in float32; crops are padded with the mean colour."
PAIRED = "Both networks of a trial see the same batches and augmentations, and differences are taken within trials."

_CIFAR = (
    "Only the paper preset (one GPU) trains the paper's networks: on CIFAR-10 12 pairs at each learning rate for 15 "
    "epochs (the rate falls after 5 and 10), and 5 pairs at 0.1 for all 90, to see that the word is the same. smoke "
    "takes embedded digits, laptop 256 images of 16×16 pixels and a network of an eighth of the width, both for two or "
    "three epochs: they show that everything runs and decide nothing.",
    "As in the authors' program and unlike the text: no momentum, no weight decay, the learning rate falls to a fifth "
    "after epochs 30 and 60 of 90, images are mirrored left to right, and test accuracy is taken with the "
    "statistics of test batches of 1,000 (it is recorded with running statistics as well).",
    PAIRED,
    PRECISION,
)

_IMAGENET = (
    "Trained on the folder imagenet/ (train/ and val/) below SKIPLENS_DATA, if there is one.",
    "Random parts are taken from the centred square of 256 pixels, not from the whole image.",
    "The authors' program for ImageNet cannot be run as published (class count, stem and pooling do not fit): here the "
    "usual stem (7×7, stride 2, max pool) and a global average pool.",
    PAIRED,
    PRECISION,
)


def items(sizes: Mapping[Preset, images.Sizes], deviations: tuple[str, ...] = ()) -> tuple[Item, ...]:
    """All items, with runs as large as `sizes` says and further deviations."""
    everywhere, title = (*_CIFAR, *_IMAGENET[:-2], *deviations), "training curves at the best learning rates"

    def at_rates(preset: Preset, seed: int, data: Data | None = None) -> list[Run]:
        return images.all_rates(data, sizes[preset], seed) if data else images.shown_rates(sizes[preset], seed)

    found = [Item("fig3", title, at_rates, FIG3, shown_curves, tables, everywhere)]
    of_data_sets: tuple[tuple[Data, tuple[Claim, ...], tuple[Claim, ...], tuple[str, ...]], ...] = (
        ("cifar10", FIG4, TABLE1, _CIFAR),
        ("cifar100", FIG5, TABLE2, _CIFAR),
        ("imagenet", FIG6, TABLE3, _IMAGENET),
    )
    for number, (data, of_figure, of_table, own) in enumerate(of_data_sets, start=1):  # table n belongs to figure n + 3
        place, deviating = f"{NAMES[data]}, all learning rates", (*own, *deviations)
        runs = partial(at_rates, data=data)
        curves = partial(rate_curves, data=data, name=f"Figure {number + 3}")
        ends = partial(final_losses, data=data, name=f"Table {number}")
        title = f"final losses and accuracies on {place}"
        found += [
            Item(f"fig{number + 3}", f"training curves on {place}", runs, of_figure, curves, tables, deviating),
            Item(f"table{number}", title, runs, of_table, ends, tables, deviating),
        ]
    return tuple(found)


ITEMS = items(images.SIZES)
