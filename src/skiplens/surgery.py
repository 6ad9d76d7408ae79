"""Changes that the papers recommend; each returns a new network, or says what a change would do."""

from skiplens.lenses.jacobians.prediction import SurgeryEffect as SurgeryEffect
from skiplens.lenses.jacobians.prediction import predict_effect as predict_effect
from skiplens.residual.initialisation import rescale_branches as rescale_branches
from skiplens.residual.initialisation import zero_branch_ends as zero_branch_ends
from skiplens.residual.surgery import add_average_pool_skips as add_average_pool_skips
from skiplens.residual.surgery import add_isometric_skips as add_isometric_skips
from skiplens.residual.surgery import pool_skips as pool_skips
from skiplens.residual.surgery import remove_pool_skips as remove_pool_skips
