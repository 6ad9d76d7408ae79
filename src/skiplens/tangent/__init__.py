"""The tangent lens: what kernel is this network, to first order in its parameters?"""

from skiplens.tangent.report import TangentLens as TangentLens
