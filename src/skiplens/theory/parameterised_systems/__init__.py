"""Multilayer parameterised systems: layers on whole data matrices with exact derivatives and certified bounds."""

from skiplens.theory.parameterised_systems.affine import Affine as Affine
from skiplens.theory.parameterised_systems.affine import ScaleShift as ScaleShift
from skiplens.theory.parameterised_systems.batch_norm import BatchNorm as BatchNorm
from skiplens.theory.parameterised_systems.certificate import Certificate as Certificate
from skiplens.theory.parameterised_systems.certificate import DataBound as DataBound
from skiplens.theory.parameterised_systems.composition import Composition as Composition
from skiplens.theory.parameterised_systems.convolution import Convolution as Convolution
from skiplens.theory.parameterised_systems.elementwise import Elementwise as Elementwise
from skiplens.theory.parameterised_systems.elementwise import FixedLinear as FixedLinear
from skiplens.theory.parameterised_systems.layer import Layer as Layer
from skiplens.theory.parameterised_systems.nonlinearity import NONLINEARITIES as NONLINEARITIES
from skiplens.theory.parameterised_systems.nonlinearity import Nonlinearity as Nonlinearity
from skiplens.theory.parameterised_systems.parameter_function import ParameterFunctionMap as ParameterFunctionMap
from skiplens.theory.parameterised_systems.parameterisation import EntryNormalised as EntryNormalised
from skiplens.theory.parameterised_systems.parameterisation import Free as Free
from skiplens.theory.parameterised_systems.parameterisation import Parameterisation as Parameterisation
from skiplens.theory.parameterised_systems.parameterisation import WeightNormalised as WeightNormalised
from skiplens.theory.parameterised_systems.residual import Residual as Residual
from skiplens.theory.parameterised_systems.residual import SkipMap as SkipMap
from skiplens.theory.parameterised_systems.sample_norm import SampleNorm as SampleNorm
from skiplens.theory.parameterised_systems.smallest import largest_singular_value as largest_singular_value
from skiplens.theory.parameterised_systems.smallest import smallest_gram_eigenvalue as smallest_gram_eigenvalue
from skiplens.theory.parameterised_systems.smallest import smallest_singular_value as smallest_singular_value
