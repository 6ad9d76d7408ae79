"""Littwin & Wolf 2016, The Loss Surface of Residual Networks: figure 1, theorems 1 to 5, lemma 4, depth in training."""

from skiplens.papers.littwin2016_ensembles import depth_during_training as depth
from skiplens.papers.littwin2016_ensembles import fig1abc, fig1d_fig1e, fig1f_thm5, lemma4, thm1_thm2, thm3_thm4
from skiplens.papers.littwin2016_ensembles.common import CARD
from skiplens.papers.study import Study

_FIG1F, _THM5 = fig1f_thm5.ITEMS
_FIG1 = (*fig1abc.ITEMS, *fig1d_fig1e.ITEMS, _FIG1F)
_THEOREMS = (*thm1_thm2.ITEMS, *lemma4.ITEMS, *thm3_thm4.ITEMS, _THM5)
STUDY = Study("littwin2016_ensembles", CARD, (*_FIG1, *_THEOREMS, *depth.ITEMS))
