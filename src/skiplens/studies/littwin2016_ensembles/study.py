"""Littwin & Wolf 2016, The Loss Surface of Residual Networks: figure 1, theorems 1 to 5, lemma 4, depth in training.

Measured at the laptop preset (6 to 10 replicates, seed 0, two CPU cores, torch 2.13): 47 claims reproduced, 15
corrected, 2 differ. The theorems hold; equations 19, 37, 41, 45 and 48 are corrected. With batch-norm scales the mean
path length of fully connected networks falls while the scales grow (3.63 → 3.19 of 10 layers, scales up by 17 %), that
of conv nets on digits rises (1.79 → 3.23 of 6 branches). What differs: scales shrink where logits start large, and the
norm of weights that start at the usual size does not grow steadily.
"""

from skiplens.studies.littwin2016_ensembles import card, runs
from skiplens.studies.littwin2016_ensembles.card import CARD
from skiplens.studies.littwin2016_ensembles.claims import complexity as complexity_claims
from skiplens.studies.littwin2016_ensembles.claims import depth as depth_claims
from skiplens.studies.littwin2016_ensembles.claims import dynamics as dynamics_claims
from skiplens.studies.littwin2016_ensembles.claims import scales as scale_claims
from skiplens.studies.littwin2016_ensembles.claims import weights as weight_claims
from skiplens.studies.littwin2016_ensembles.figures import complexity as complexity_figures
from skiplens.studies.littwin2016_ensembles.figures import depth as depth_figures
from skiplens.studies.littwin2016_ensembles.figures import dynamics as dynamics_figures
from skiplens.studies.littwin2016_ensembles.figures import scales as scale_figures
from skiplens.studies.littwin2016_ensembles.figures import weights as weight_figures
from skiplens.studies.raw_tables import raw_tables
from skiplens.studies.study import Item, Study

_EXACT = (card.CLOSED_FORM,)
_MIXED = (card.CLOSED_FORM, card.RANDOM_NETWORKS, card.REPLICATES)

STUDY = Study(
    "littwin2016_ensembles",
    CARD,
    (
        Item(
            "fig1a",
            "path weights for β = 0.1",
            runs.fig1a,
            weight_claims.FIG1A,
            weight_figures.histogram,
            raw_tables,
            _EXACT,
        ),
        Item(
            "fig1b",
            "path weights for β = 0.5",
            runs.fig1b,
            weight_claims.FIG1B,
            weight_figures.histogram,
            raw_tables,
            _EXACT,
        ),
        Item(
            "fig1c",
            "path weights for β = 2",
            runs.fig1c,
            weight_claims.FIG1C,
            weight_figures.histogram,
            raw_tables,
            _EXACT,
        ),
        Item(
            "fig1d",
            "batch-norm scales during training",
            runs.fig1d,
            scale_claims.FIG1D,
            scale_figures.fig1d,
            raw_tables,
            (card.GAUSSIANS, card.SETTINGS_MATTER, card.REPLICATES),
        ),
        Item(
            "fig1e",
            "weight norm during training without batch norm",
            runs.fig1e,
            scale_claims.FIG1E,
            scale_figures.fig1e,
            raw_tables,
            (card.PLAIN, card.REPLICATES),
        ),
        Item(
            "fig1f",
            "complexity against β",
            runs.fig1f,
            complexity_claims.FIG1F,
            complexity_figures.fig1f,
            raw_tables,
            (card.LINEAR_TERM, card.FEW_SPINS, card.CLOSED_FORM),
        ),
        Item("thm1", "where the peak goes", runs.thm1, weight_claims.THM1, weight_figures.thm1, raw_tables, _MIXED),
        Item(
            "thm2",
            "concentration and its speed",
            runs.thm2,
            weight_claims.THM2,
            weight_figures.thm2,
            raw_tables,
            _MIXED,
        ),
        Item(
            "lemma4",
            "any depth by scaling",
            runs.lemma4,
            weight_claims.LEMMA4,
            weight_figures.lemma4,
            raw_tables,
            _MIXED,
        ),
        Item(
            "thm3",
            "what drives batch-norm scales",
            runs.thm3,
            dynamics_claims.THM3,
            dynamics_figures.thm3,
            raw_tables,
            (card.SPIN_GLASS, card.REPLICATES),
        ),
        Item(
            "thm4",
            "what drives the weight scale",
            runs.thm4,
            dynamics_claims.THM4,
            dynamics_figures.thm4,
            raw_tables,
            (card.SPIN_GLASS, card.REPLICATES),
        ),
        Item(
            "thm5",
            "which mixtures maximise the complexity",
            runs.thm5,
            complexity_claims.THM5,
            complexity_figures.thm5,
            raw_tables,
            (card.FEW_SPINS, card.REPLICATES),
        ),
        Item(
            "depth_during_training",
            "path spectra of networks as they train",
            runs.depth_during_training,
            depth_claims.DEPTH,
            depth_figures.depth_during_training,
            raw_tables,
            (card.IMAGES, card.REPLICATES),
        ),
    ),
)
