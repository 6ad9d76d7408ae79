import pytest

from skiplens.base.errors import InvalidInputError
from skiplens.kernels.architectures import DenseNetKernel, ResNetKernel, VanillaKernel, kernel_by_name


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [
        ("resnet", ResNetKernel(3, 2, 0.5, trained="all", normalise=True)),
        ("densenet", DenseNetKernel(3, trained="all", normalise=True)),
        ("vanilla", VanillaKernel(3, trained="all", normalise=True)),
    ],
)
def test_by_name(architecture, expected):
    assert kernel_by_name(architecture, 3, 2, 0.5, "all", True) == expected


def test_unknown_names_get_an_offer():
    with pytest.raises(InvalidInputError, match=r"There is no architecture 'densnet'\. Did you mean densenet"):
        kernel_by_name("densnet", 3, 2, 0.5, "all", True)
