"""What the paper says about training speed, final losses and accuracies, decided over pairs of networks."""

import math
from collections.abc import Sequence
from functools import partial

import torch

from skiplens.readings import Measurement
from skiplens.studies.claim import Claim, Judgement
from skiplens.studies.macdonald2023_regularity.images.pairs import (
    FEW,
    accuracy,
    differences,
    final_loss,
    judged,
    log_final_loss,
    mean_log_loss,
    not_comparable,
    of_data,
)
from skiplens.studies.macdonald2023_regularity.images.printed import TABLES
from skiplens.studies.macdonald2023_regularity.images.settings import LEARNING_RATES, SHOWN, Data
from skiplens.studies.statistics import Band, decide_correction, over_seeds

DEVIATIONS = 3.0
"""A printed number is met within so many of its printed standard deviations."""
SAME_ACCURACY = 0.0061
"""Accuracies that differ by less are the same: the largest printed deviation at learning rate 0.1."""
SAME_LOSS, OTHER_LOSS = 1.1, 1.5
"""Largest over smallest final loss of four learning rates: as table 2 prints them, and if they really differ."""
PRINTED_DIVERGED, DIVERGED_TOLERANCE = 0.6, 0.3
NOT_CONVERGED: dict[Data, float] = {"cifar10": 0.5, "cifar100": 0.5, "imagenet": 2.0}
"""A final loss above this has not converged: those that did are below 0.02 on CIFAR and below 1.1 on ImageNet."""
NAMES: dict[Data, str] = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "imagenet": "ImageNet"}
_LOWER, _HIGHER = Band(-math.inf, 0.0), Band(0.0, math.inf)


def judge_speed(readings: Sequence[Measurement], data: Data, rate: float) -> Judgement:
    """Whether the modified network's training curve lies lower."""
    chosen = of_data(readings, data, learning_rate=rate)
    sentence = (
        f"Mean over epochs of ln(loss), modified minus original, {NAMES[data]}, learning rate {rate:g}; faster means "
        "negative."
    )
    return judged(differences(chosen, mean_log_loss), _LOWER, sentence, not_comparable(chosen, data, False))


def judge_final(readings: Sequence[Measurement], data: Data, rate: float) -> Judgement:
    """Whether the final loss changes as printed."""
    original, modified = (cell.value for cell in TABLES[data][rate].loss)
    chosen = of_data(readings, data, learning_rate=rate)
    sentence = (
        f"ln(final loss), modified minus original, learning rate {rate:g}; the table prints "
        f"{math.log(modified / original):+.2f}."
    )
    band = _LOWER if modified < original else _HIGHER
    return judged(differences(chosen, log_final_loss), band, sentence, not_comparable(chosen, data, False))


def judge_cells(readings: Sequence[Measurement], data: Data, rate: float) -> Judgement:
    """Whether both final losses are the printed ones."""
    chosen = of_data(readings, data, learning_rate=rate)
    sentence = f"Final losses in printed standard deviations from the printed ones, learning rate {rate:g}."
    problem = not_comparable(chosen, data, True)
    columns = [
        [(final_loss(r) - cell.value) / cell.deviation for r in chosen if r.setting("modified") == modified]
        for modified, cell in zip((False, True), TABLES[data][rate].loss, strict=True)
    ]
    values = torch.tensor(columns, dtype=torch.float64).T if chosen else torch.zeros(0, 2)
    return judged(values[torch.isfinite(values).all(1)], Band.around(0.0, DEVIATIONS), sentence, problem)


def judge_accuracy(readings: Sequence[Measurement], data: Data) -> Judgement:
    """Whether both networks have the same test accuracy."""
    rate = SHOWN[data]
    chosen = of_data(readings, data, learning_rate=rate)
    sentence = (
        f"Test accuracy, modified minus original, learning rate {rate:g}, with the statistics of test batches as in "
        "the authors' program."
    )
    band = Band.around(0.0, SAME_ACCURACY)
    return judged(differences(chosen, accuracy), band, sentence, not_comparable(chosen, data, True))


def judge_better_accuracy(readings: Sequence[Measurement]) -> Judgement:
    """Whether the modified network classifies ImageNet better."""
    chosen = of_data(readings, "imagenet", learning_rate=SHOWN["imagenet"])
    sentence = "Validation accuracy, modified minus original; the table's differences have p = 0.05, 0.11 and 0.27."
    return judged(differences(chosen, accuracy), _HIGHER, sentence, not_comparable(chosen, "imagenet", True))


def judge_unstable(readings: Sequence[Measurement], data: Data, modified: bool) -> Judgement:
    """How many networks fail at the largest learning rate."""
    chosen = [r for r in of_data(readings, data, learning_rate=0.2) if r.setting("modified") == modified]
    failed = torch.tensor([not final_loss(r) < NOT_CONVERGED[data] for r in chosen], dtype=torch.float64)
    share = PRINTED_DIVERGED if data == "cifar10" else 1.0
    sentence = (
        f"Share of networks that did not converge at learning rate 0.2 (final loss above {NOT_CONVERGED[data]:g})."
    )
    return judged(failed, Band.around(share, DIVERGED_TOLERANCE), sentence, not_comparable(chosen, data, True))


def judge_rates(readings: Sequence[Measurement]) -> Judgement:
    """Whether the learning rate matters on CIFAR-100."""
    chosen = of_data(readings, "cifar100", modified=False)
    problem = not_comparable(chosen, "cifar100", True)
    sentence = (
        "Largest over smallest final loss of the four learning rates, original network: 1.03 in table 2, because the "
        "authors' program trains all four rows at 0.1; 3.5 on CIFAR-10, where the rates are used."
    )
    trials = sorted({r.setting("replicate") for r in chosen})
    losses = [[final_loss(r) for r in chosen if r.setting("replicate") == trial] for trial in trials]
    ratios = torch.tensor([max(row) / min(row) for row in losses], dtype=torch.float64)
    if problem or len(ratios) < FEW:
        return judged(ratios, Band(1.0, SAME_LOSS), sentence, problem)
    found = over_seeds(ratios)
    return decide_correction((found, Band(1.0, SAME_LOSS)), (found, Band(OTHER_LOSS, math.inf)), sentence)


def _speed(name: str, data: Data, rate: float, place: str) -> Claim:
    statement = f"On {NAMES[data]} the modified network trains faster at learning rate {rate:g}."
    return Claim(name, statement, place, "lower loss", partial(judge_speed, data=data, rate=rate))


def _word(rate: float) -> str:
    return f"{rate:g}".replace(".", "_")


def _finals(data: Data, place: str) -> tuple[Claim, ...]:
    """For every learning rate that converged: the sign of the change, and both numbers."""
    claims: list[Claim] = []
    for rate, row in TABLES[data].items():
        if row.loss[0].value > NOT_CONVERGED[data]:
            continue
        original, modified = row.loss
        word = "lower" if modified.value < original.value else "higher"
        claims += [
            Claim(
                f"final_loss_{_word(rate)}",
                f"The modified network's final loss is {word} at learning rate {rate:g}.",
                place,
                f"{original.value:.4f} → {modified.value:.4f}",
                partial(judge_final, data=data, rate=rate),
            ),
            Claim(
                f"values_{_word(rate)}",
                f"The final losses at learning rate {rate:g}.",
                place,
                f"{original.value:.4f} ± {original.deviation:.4f}, {modified.value:.4f} ± {modified.deviation:.4f}",
                partial(judge_cells, data=data, rate=rate),
            ),
        ]
    return tuple(claims)


def _same_accuracy(data: Data) -> Claim:
    return Claim(
        "accuracy",
        "Validation accuracies were not significantly different between the two models.",
        "Section 6.3",
        "no difference",
        partial(judge_accuracy, data=data),
    )


FIG3 = tuple(_speed(data, data, rate, "Figure 3") for data, rate in SHOWN.items())
FIG4 = tuple(_speed(f"rate_{_word(rate)}", "cifar10", rate, "Figure 4, hypothesis 6.1") for rate in LEARNING_RATES)
FIG5 = tuple(_speed(f"rate_{_word(rate)}", "cifar100", rate, "Figure 5, hypothesis 6.1") for rate in LEARNING_RATES)
FIG6 = (
    *(_speed(f"rate_{_word(rate)}", "imagenet", rate, "Figure 6") for rate in LEARNING_RATES[1:]),
    Claim(
        "unstable",
        "The modified architecture did not converge at the maximum learning rate of 0.2.",
        "Figure 6",
        "none of 3",
        partial(judge_unstable, data="imagenet", modified=True),
    ),
)
TABLE1 = (
    *_finals("cifar10", "Table 1"),
    _same_accuracy("cifar10"),
    Claim(
        "unstable",
        "At learning rate 0.2 training diverged 6 out of 10 times on the original network.",
        "Appendix C",
        "6 of 10",
        partial(judge_unstable, data="cifar10", modified=False),
    ),
)
TABLE2 = (
    *_finals("cifar100", "Table 2"),
    _same_accuracy("cifar100"),
    Claim(
        "learning_rates",
        "The final losses hardly depend on the learning rate.",
        "Table 2",
        "0.0145 to 0.0150",
        judge_rates,
    ),
)
TABLE3 = (
    *_finals("imagenet", "Table 3"),
    Claim(
        "accuracy",
        "The modified version had significantly better validation accuracy.",
        "Section 6.3",
        "74.62 → 74.84 %",
        judge_better_accuracy,
    ),
)
