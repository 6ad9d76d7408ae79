"""Strict surroundings for every test: float64, one thread, a seed that CI can vary.

skiplens is imported inside fixtures only: the hook that checks shapes must come first.
"""

import os

import hypothesis
import pytest
import torch


def pytest_configure(config: pytest.Config) -> None:
    torch.set_num_threads(1)
    # A busy machine is no fault of the code: nothing fails for the time that an example, or drawing it, takes.
    slow = [hypothesis.HealthCheck.too_slow]
    hypothesis.settings.register_profile("skiplens", deadline=None, suppress_health_check=slow)
    hypothesis.settings.load_profile("skiplens")


@pytest.fixture(autouse=True)
def double_precision():
    """Tests compute in float64 unless they say otherwise, and leave the default as they found it."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.fixture
def seed() -> int:
    """The seed of a test's randomness; SKIPLENS_TEST_SEED varies it."""
    return int(os.environ.get("SKIPLENS_TEST_SEED", "0"))


@pytest.fixture(autouse=True)
def repeatable_draws(seed: int) -> None:
    """Draws without a generator are the same in every run: a test that fails, fails again."""
    torch.manual_seed(seed)


@pytest.fixture
def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
