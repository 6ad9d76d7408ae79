"""Model and batch in, exact derivatives and matrix-free operators out."""

from skiplens.derivatives.functional import PureModel as PureModel
from skiplens.derivatives.functional import is_batch_coupled as is_batch_coupled
from skiplens.derivatives.functional import pure_model as pure_model
from skiplens.derivatives.tangent import KernelCondition as KernelCondition
from skiplens.derivatives.tangent import NTKOperator as NTKOperator
from skiplens.derivatives.tangent import empirical_ntk as empirical_ntk
from skiplens.derivatives.tangent import ntk_condition as ntk_condition
from skiplens.derivatives.tangent import ntk_diagonal as ntk_diagonal
