"""Shapes as types: `Float[Tensor, "samples params"]`, checked in tests only.

The vocabulary of axes: samples, other_samples, classes, outputs, features, params, blocks, width, rank, probes, orders.
jaxtyping is the one door; without it (it is no run-time dependency) an annotation is just the tensor.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxtyping import Bool as Bool
    from jaxtyping import Float as Float
    from jaxtyping import Int as Int
else:
    try:
        from jaxtyping import Bool, Float, Int
    except ImportError:

        class _Shaped:
            def __getitem__(self, item: tuple[Any, str]) -> Any:
                return item[0]

        Float = Int = Bool = _Shaped()
