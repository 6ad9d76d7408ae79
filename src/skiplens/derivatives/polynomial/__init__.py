"""The polynomial in t that a network becomes when each branch is multiplied by t, carried through its graph."""

from skiplens.derivatives.polynomial.backward import pull_back as pull_back
from skiplens.derivatives.polynomial.interpreter import Expansion as Expansion
from skiplens.derivatives.polynomial.interpreter import expand_signal as expand_signal
from skiplens.derivatives.polynomial.interpreter import expand_tangent as expand_tangent
from skiplens.derivatives.polynomial.joins import BlockDerivatives as BlockDerivatives
from skiplens.derivatives.polynomial.joins import Counting as Counting
from skiplens.derivatives.polynomial.joins import PathOrders as PathOrders
from skiplens.derivatives.polynomial.joins import TotalDerivative as TotalDerivative
from skiplens.derivatives.polynomial.plan import Plan as Plan
from skiplens.derivatives.polynomial.plan import frozen_plan as frozen_plan
from skiplens.derivatives.polynomial.plan import tangent_plan as tangent_plan
from skiplens.derivatives.polynomial.whole_paths import weight_paths as weight_paths
