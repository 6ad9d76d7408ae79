"""The paper, and where we do something else than it says."""

from skiplens.papers.littwin2016_ensembles import (
    depth,
    fig1abc,
    fig1d_fig1e,
    fig1f_thm5,
    runs,
    thm1_thm2_lemma4,
    thm3_thm4,
)
from skiplens.papers.statistics import raw_tables
from skiplens.papers.study import Item, PaperCard, Study

CARD = PaperCard(
    title="The Loss Surface of Residual Networks: Ensembles & the Role of Batch Normalization",
    authors="E. Littwin and L. Wolf",
    year=2016,
    link="arXiv:1611.02525",
    question="Which path lengths carry the signal of a residual network, and does training make them longer?",
    errata="errata/littwin2016_ensembles.md",
)

CLOSED_FORM = (
    "Closed forms: nothing is drawn and there is no uncertainty. They are checked against sums of whole numbers."
)

RANDOM_NETWORKS = (
    "The paper measures no spectra of networks. Here they are those of the last layer's units of random networks, 20 "
    "blocks, Gaussian inputs, weights of variance 1/inputs."
)

GAUSSIANS = (
    "The paper gives neither the task nor the recipe. Here: 20 features, fresh samples each step, width 64, SGD, "
    "batches of 128. Eq. 20 as printed: means and covariances differ, head of scale 0.01, rate 0.002. Centred: only "
    "covariances differ, head 0.1, rate 0.05. Large head: means and covariances differ, head 1, rate 0.1."
)

SETTINGS_MATTER = (
    "Whether the scales grow depends on the setting: growth was seen when the logits start small and the step causes "
    "no early transient. In other settings, one of which is shown, the mean scale fell or hardly moved."
)

PLAIN = (
    "The paper gives neither the task nor the recipe. Here: Gaussians that differ in their covariances, 20 features, "
    "width 64, SGD with rate 0.02, batches of 128, weights that start as 0.3/√inputs or 1/√inputs."
)

SPIN_GLASS = (
    "The paper has no example. Here losses are random spin glasses of orders (2, 4) with 8 weights and (3, 5) with 6, "
    "scales around ±1, σ = 1; each point lies on a random great circle where the hypothesis holds to rounding: "
    "L_m + L_p = 0 for a layer without skip, L_p = 0 for one with it (one hypothesis in the paper)."
)

LINEAR_TERM = (
    "Paths of length 1 are left out and ε is normalised again, as in the paper's section 5; the network has them, and "
    "the other curve shows what they change."
)

FEW_SPINS = "The paper counts in the limit of many spins; here counts are for two or three, against the exact mean."

IMAGES = (
    "The paper shows no spectra of trained networks. Here: identity blocks x + λR(Wx)/σ on 1,700 of the embedded MNIST "
    "digits at 16×16 pixels, looked at on 64 others, 200 steps of SGD with momentum; six conv blocks of 8 channels, "
    "nine dense ones of 64 units. The paper preset takes 10,000 whole images of MNIST and CIFAR-10 (`skiplens data get "
    "mnist`, `skiplens data get cifar10`) and needs a GPU."
)

REPLICATES = "The paper shows one run; here everything is drawn again for several seeds, and intervals are over them."

_EXACT = (CLOSED_FORM,)

_MIXED = (CLOSED_FORM, RANDOM_NETWORKS, REPLICATES)

STUDY = Study(
    "littwin2016_ensembles",
    CARD,
    (
        Item(
            "fig1a",
            "path weights for β = 0.1",
            runs.fig1a_runs,
            fig1abc.FIG1A,
            fig1abc.draw_histogram,
            raw_tables,
            _EXACT,
        ),
        Item(
            "fig1b",
            "path weights for β = 0.5",
            runs.fig1b_runs,
            fig1abc.FIG1B,
            fig1abc.draw_histogram,
            raw_tables,
            _EXACT,
        ),
        Item(
            "fig1c",
            "path weights for β = 2",
            runs.fig1c_runs,
            fig1abc.FIG1C,
            fig1abc.draw_histogram,
            raw_tables,
            _EXACT,
        ),
        Item(
            "fig1d",
            "batch-norm scales during training",
            runs.fig1d_runs,
            fig1d_fig1e.FIG1D,
            fig1d_fig1e.draw_fig1d,
            raw_tables,
            (GAUSSIANS, SETTINGS_MATTER, REPLICATES),
        ),
        Item(
            "fig1e",
            "weight norm during training without batch norm",
            runs.fig1e_runs,
            fig1d_fig1e.FIG1E,
            fig1d_fig1e.draw_fig1e,
            raw_tables,
            (PLAIN, REPLICATES),
        ),
        Item(
            "fig1f",
            "complexity against β",
            runs.fig1f_runs,
            fig1f_thm5.FIG1F,
            fig1f_thm5.draw_fig1f,
            raw_tables,
            (LINEAR_TERM, FEW_SPINS, CLOSED_FORM),
        ),
        Item(
            "thm1",
            "where the peak goes",
            runs.thm1_runs,
            thm1_thm2_lemma4.THM1,
            thm1_thm2_lemma4.draw_thm1,
            raw_tables,
            _MIXED,
        ),
        Item(
            "thm2",
            "concentration and its speed",
            runs.thm2_runs,
            thm1_thm2_lemma4.THM2,
            thm1_thm2_lemma4.draw_thm2,
            raw_tables,
            _MIXED,
        ),
        Item(
            "lemma4",
            "any depth by scaling",
            runs.lemma4_runs,
            thm1_thm2_lemma4.LEMMA4,
            thm1_thm2_lemma4.draw_lemma4,
            raw_tables,
            _MIXED,
        ),
        Item(
            "thm3",
            "what drives batch-norm scales",
            runs.thm3_runs,
            thm3_thm4.THM3,
            thm3_thm4.draw_thm3,
            raw_tables,
            (SPIN_GLASS, REPLICATES),
        ),
        Item(
            "thm4",
            "what drives the weight scale",
            runs.thm4_runs,
            thm3_thm4.THM4,
            thm3_thm4.draw_thm4,
            raw_tables,
            (SPIN_GLASS, REPLICATES),
        ),
        Item(
            "thm5",
            "which mixtures maximise the complexity",
            runs.thm5_runs,
            fig1f_thm5.THM5,
            fig1f_thm5.draw_thm5,
            raw_tables,
            (FEW_SPINS, REPLICATES),
        ),
        Item(
            "depth_during_training",
            "path spectra of networks as they train",
            runs.depth_during_training_runs,
            depth.DEPTH,
            depth.draw_depth_during_training,
            raw_tables,
            (IMAGES, REPLICATES),
        ),
    ),
)
