"""Hessian, Gauss-Newton and Fisher matrices of any model and data, by their products with vectors."""

from skiplens.derivatives.hessian.operator import LossOperator as LossOperator
from skiplens.derivatives.hessian.operator import loss_operator as loss_operator
