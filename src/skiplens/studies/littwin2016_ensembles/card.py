"""The paper, and where we do something else than it says."""

from skiplens.studies.study import PaperCard

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
