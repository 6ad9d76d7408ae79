"""Hessians of shortcut networks ('Demystifying ResNet'): at zero in closed form, elsewhere exactly."""

from skiplens.papers.li2016_shortcuts.hessian.activations import ACTIVATIONS as ACTIVATIONS
from skiplens.papers.li2016_shortcuts.hessian.activations import Activation as Activation
from skiplens.papers.li2016_shortcuts.hessian.activations import BranchActivations as BranchActivations
from skiplens.papers.li2016_shortcuts.hessian.at_zero import ZeroPoint as ZeroPoint
from skiplens.papers.li2016_shortcuts.hessian.at_zero import half_space_slopes as half_space_slopes
from skiplens.papers.li2016_shortcuts.hessian.at_zero import hessian_at_zero as hessian_at_zero
from skiplens.papers.li2016_shortcuts.hessian.at_zero import (
    near_zero_rectified_spectrum as near_zero_rectified_spectrum,
)
from skiplens.papers.li2016_shortcuts.hessian.at_zero import orthogonal_spectrum as orthogonal_spectrum
from skiplens.papers.li2016_shortcuts.hessian.exact import commutation_matrix as commutation_matrix
from skiplens.papers.li2016_shortcuts.hessian.exact import flatten as flatten
from skiplens.papers.li2016_shortcuts.hessian.exact import hessian_by_autograd as hessian_by_autograd
from skiplens.papers.li2016_shortcuts.hessian.exact import shortcut_hessian as shortcut_hessian
from skiplens.papers.li2016_shortcuts.hessian.exact import shortcut_outputs as shortcut_outputs
from skiplens.papers.li2016_shortcuts.hessian.exact import square_loss as square_loss
from skiplens.papers.li2016_shortcuts.hessian.exact import unflatten as unflatten
from skiplens.papers.li2016_shortcuts.hessian.linear import LinearUnit as LinearUnit
from skiplens.papers.li2016_shortcuts.hessian.linear import linear_gradient as linear_gradient
from skiplens.papers.li2016_shortcuts.hessian.linear import linear_hessian as linear_hessian
from skiplens.papers.li2016_shortcuts.hessian.linear import linear_loss as linear_loss
from skiplens.papers.li2016_shortcuts.hessian.linear import plain_units as plain_units
from skiplens.papers.li2016_shortcuts.hessian.linear import shortcut_units as shortcut_units
from skiplens.papers.li2016_shortcuts.hessian.linear_inertia import count_negative as count_negative
from skiplens.papers.li2016_shortcuts.hessian.linear_inertia import linear_spectrum as linear_spectrum
from skiplens.papers.li2016_shortcuts.hessian.one_shortcut import ToeplitzBlocks as ToeplitzBlocks
from skiplens.papers.li2016_shortcuts.hessian.rectified import RectifiedHessian as RectifiedHessian
from skiplens.papers.li2016_shortcuts.hessian.rectified import rectified_hessian as rectified_hessian
from skiplens.papers.li2016_shortcuts.hessian.spectrum import CountedSpectrum as CountedSpectrum
from skiplens.papers.li2016_shortcuts.hessian.spectrum import ListedSpectrum as ListedSpectrum
from skiplens.papers.li2016_shortcuts.hessian.spectrum import Spectrum as Spectrum
from skiplens.papers.li2016_shortcuts.hessian.spectrum import listed_spectrum as listed_spectrum
from skiplens.papers.li2016_shortcuts.hessian.spectrum import spectrum_of as spectrum_of
