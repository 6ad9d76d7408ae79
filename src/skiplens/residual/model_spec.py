"""A model from the words that name it: `zoo:NAME`, `path/file.py:function` or `package.module:function`."""

from torch import nn

from skiplens.core.errors import ModelSpecError
from skiplens.core.named import call_named, with_article
from skiplens.residual import zoo


def build_model(spec: str, seed: int = 0) -> nn.Module:
    """The model that `spec` names.

    `zoo:NAME` takes options after commas, as in ``zoo:tangent_resnet,depth=10,branch_scale=0.3``, and `seed` for its
    weights. A function of a file or a package is called without arguments and must return an `nn.Module`.
    """
    if ":" not in spec:
        raise ModelSpecError(
            f"{spec!r} does not name a model. Write zoo:NAME (skiplens zoo lists them), path/file.py:function or "
            "package.module:function."
        )
    if spec.startswith("zoo:"):
        name, comma, options = spec.removeprefix("zoo:").partition(",")
        return zoo.build_from_text(f"{name},seed={seed}{comma}{options}")
    model = call_named(spec)
    if not isinstance(model, nn.Module):
        raise ModelSpecError(
            f"{spec!r} returned {with_article(type(model).__name__)}, not a torch.nn.Module. Return the model itself."
        )
    return model


def input_shape(spec: str) -> tuple[int, ...] | None:
    """The shape of one sample of a network of the zoo; None for models that do not say."""
    if not spec.startswith("zoo:"):
        return None
    name, options = zoo.parse(spec.removeprefix("zoo:"))
    options.pop("seed", None)
    return zoo.entry(name).settings(options).input_shape()
