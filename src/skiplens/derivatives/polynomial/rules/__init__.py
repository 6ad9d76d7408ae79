"""How each operation acts on a stack of coefficients once its operating point is frozen."""

from skiplens.derivatives.polynomial.rules.rule import Fate as Fate
from skiplens.derivatives.polynomial.rules.rule import Rule as Rule
from skiplens.derivatives.polynomial.rules.rule import Status as Status
from skiplens.derivatives.polynomial.rules.table import rule_of as rule_of
