"""Multilayer parameterised systems: layers on whole data matrices with exact derivatives and certified bounds."""

from skiplens.jacobians.systems.affine import Affine as Affine
from skiplens.jacobians.systems.affine import Convolution as Convolution
from skiplens.jacobians.systems.affine import ScaleShift as ScaleShift
from skiplens.jacobians.systems.elementwise import NONLINEARITIES as NONLINEARITIES
from skiplens.jacobians.systems.elementwise import Elementwise as Elementwise
from skiplens.jacobians.systems.elementwise import FixedLinear as FixedLinear
from skiplens.jacobians.systems.elementwise import Nonlinearity as Nonlinearity
from skiplens.jacobians.systems.elementwise import Residual as Residual
from skiplens.jacobians.systems.elementwise import SkipMap as SkipMap
from skiplens.jacobians.systems.layer import Certificate as Certificate
from skiplens.jacobians.systems.layer import Composition as Composition
from skiplens.jacobians.systems.layer import DataBound as DataBound
from skiplens.jacobians.systems.layer import Layer as Layer
from skiplens.jacobians.systems.norms import BatchNorm as BatchNorm
from skiplens.jacobians.systems.norms import SampleNorm as SampleNorm
from skiplens.jacobians.systems.parameterisation import EntryNormalised as EntryNormalised
from skiplens.jacobians.systems.parameterisation import Free as Free
from skiplens.jacobians.systems.parameterisation import Parameterisation as Parameterisation
from skiplens.jacobians.systems.parameterisation import WeightNormalised as WeightNormalised
