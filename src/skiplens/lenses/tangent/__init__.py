"""The tangent lens: what kernel is this network, to first order in its parameters?"""

from skiplens.lenses.tangent.empirical import TangentLens as TangentLens
