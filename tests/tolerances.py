"""One table of tolerances by dtype; a test that needs another one says why beside it."""

import torch

RELATIVE = {torch.float64: 1e-12, torch.float32: 1e-5}
"""For sums of at most a few thousand terms: about a hundred roundings of the dtype."""

STANDARD_ERRORS = 4.0
"""A Monte-Carlo mean may lie this many standard errors from the truth (one wrong alarm in 16,000)."""


def assert_close(actual: torch.Tensor, expected: torch.Tensor, relative: float | None = None) -> None:
    """Largest deviation relative to the largest expected entry; tensors and dtypes must match in shape."""
    actual, expected = torch.as_tensor(actual), torch.as_tensor(expected)
    assert actual.shape == expected.shape, f"shape {tuple(actual.shape)} instead of {tuple(expected.shape)}"
    if not expected.numel():
        return
    tolerance = RELATIVE[actual.dtype] if relative is None else relative
    scale = expected.double().abs().max().item() or 1.0
    error = (actual.double() - expected.double()).abs().max().item() / scale
    assert error <= tolerance, f"relative deviation {error:.3g} exceeds {tolerance:.3g}"
