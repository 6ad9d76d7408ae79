"""The empirical neural tangent kernel of any model: whole, its diagonal, its products, the ends of its spectrum."""

from skiplens.derivatives.tangent.condition import KernelCondition as KernelCondition
from skiplens.derivatives.tangent.condition import ntk_condition as ntk_condition
from skiplens.derivatives.tangent.diagonal import ntk_diagonal as ntk_diagonal
from skiplens.derivatives.tangent.empirical import empirical_ntk as empirical_ntk
from skiplens.derivatives.tangent.operator import NTKOperator as NTKOperator
