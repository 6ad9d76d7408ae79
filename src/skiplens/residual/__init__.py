"""What we look at: residual blocks, the networks they make, and how to change them."""

from skiplens.residual.block import Addition as Addition
from skiplens.residual.block import Branch as Branch
from skiplens.residual.block import DenseJoin as DenseJoin
from skiplens.residual.block import ResidualBlock as ResidualBlock
from skiplens.residual.block import Shortcut as Shortcut
from skiplens.residual.block import ShortcutKind as ShortcutKind
from skiplens.residual.dissect import dissect as dissect
from skiplens.residual.dissect import find_residual_blocks as find_residual_blocks
from skiplens.residual.network import ResidualNetwork as ResidualNetwork
from skiplens.residual.parts import part_function as part_function
from skiplens.residual.parts import span_function as span_function
