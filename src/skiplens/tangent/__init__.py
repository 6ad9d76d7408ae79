"""The tangent lens: what kernel is this network, to first order in its parameters?"""

from skiplens.tangent.empirical import KernelCondition as KernelCondition
from skiplens.tangent.empirical import empirical_ntk as empirical_ntk
from skiplens.tangent.empirical import ntk_condition as ntk_condition
from skiplens.tangent.empirical import ntk_diagonal as ntk_diagonal
from skiplens.tangent.products import NTKOperator as NTKOperator
from skiplens.tangent.report import TangentLens as TangentLens
