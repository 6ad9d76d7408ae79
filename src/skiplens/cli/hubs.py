"""Models where people keep them: Hugging Face (`hf:`), timm (`timm:`) and torchvision (`torchvision:`); no network."""

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import nn

from skiplens.base import InvalidInputError, ModelSpecError, Randomness, SkiplensError, did_you_mean, require_known
from skiplens.base.files import is_folder, user_path
from skiplens.base.optional_imports import optional_import
from skiplens.base.preserve_state import preserve_random_state
from skiplens.graph.batch import Batch, as_batch
from skiplens.graph.inputs import first_line

HEADS = ("ForImageClassification", "ForSeq2SeqLM", "ForMaskedLM", "ForCausalLM", "ForSequenceClassification", "")
SAMPLES, TOKENS, SIDE = 64, 128, 224


def build_from_hub(spec: str, options: Mapping[str, Any], pretrained: bool, seed: int) -> nn.Module:
    """The model that ``hf:NAME``, ``timm:NAME`` or ``torchvision:NAME`` means, with random weights unless `pretrained`.

    Weights and configurations come from this machine alone: a folder, or what was downloaded before.
    """
    hub, _, name = spec.partition(":")
    try:
        with offline(), preserve_random_state():
            torch.manual_seed(seed)
            return HUBS[hub](name, options, pretrained)
    except SkiplensError:
        raise
    except Exception as error:
        cause = first_line(error)
        hint = " Weights must have been downloaded before: nothing is fetched here." if pretrained else ""
        raise ModelSpecError(f"{spec!r} cannot be built: {type(error).__name__}: {cause}{hint}") from error


@contextmanager
def offline() -> Iterator[None]:
    """Run a block that cannot open a connection, whatever a library tries."""

    def refuse(*given: Any, **named: Any) -> Any:
        raise OSError("it is not on this machine, and nothing is downloaded")

    flags = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    with (
        mock.patch.dict(os.environ, flags),
        mock.patch.object(socket.socket, "connect", refuse),
        mock.patch.object(socket, "getaddrinfo", refuse),
    ):
        yield


def _hugging_face(name: str, options: Mapping[str, Any], pretrained: bool) -> nn.Module:
    transformers = optional_import("transformers", "models named hf:…")
    place = os.fspath(user_path(name)) if is_folder(user_path(name)) else name
    try:
        config = transformers.AutoConfig.from_pretrained(place, local_files_only=True)
    except Exception as error:
        if name not in transformers.CONFIG_MAPPING or pretrained:
            near = "" if pretrained else f" {did_you_mean(name, list(transformers.CONFIG_MAPPING))}"
            raise ModelSpecError(
                f"hf:{name} is neither a folder with a config.json nor a model that was downloaded before.{near}"
            ) from error
        config = transformers.AutoConfig.for_model(name)  # the sizes of the family's first model
    unknown = [key for key in options if not hasattr(config, key)]
    if unknown:
        raise ModelSpecError(
            f"hf:{name} has no option {unknown[0]!r}. {did_you_mean(unknown[0], list(config.to_dict()))}"
        )
    config.update(dict(options))
    kind = getattr(transformers, (config.architectures or [""])[0] or "-", None)
    if kind is not None and not pretrained:
        return kind(config)
    autos = [kind] if kind is not None else [getattr(transformers, f"AutoModel{head}") for head in HEADS]
    for auto in autos:
        try:
            if pretrained:
                return auto.from_pretrained(place, config=config, local_files_only=True)
            return auto.from_config(config)
        except ValueError as error:  # a family without this head
            if "Unrecognized configuration class" not in str(error):
                raise
    raise ModelSpecError(
        f"hf:{name} is a {type(config).__name__}, for which transformers has no model that is known here."
    )


def _timm(name: str, options: Mapping[str, Any], pretrained: bool) -> nn.Module:
    timm = optional_import("timm", "models named timm:…")
    require_known(name, timm.list_models(), f"timm has no model {name!r}.", ModelSpecError)
    return timm.create_model(name, pretrained=pretrained, **options)


def _torchvision(name: str, options: Mapping[str, Any], pretrained: bool) -> nn.Module:
    models = optional_import("torchvision.models", "models named torchvision:…", "torchvision")
    require_known(name, models.list_models(), f"torchvision has no model {name!r}.", ModelSpecError)
    return models.get_model(name, weights="DEFAULT" if pretrained else None, **options)


HUBS: dict[str, Callable[[str, Mapping[str, Any], bool], nn.Module]] = {
    "hf": _hugging_face,
    "timm": _timm,
    "torchvision": _torchvision,
}


def image_shape(model: nn.Module) -> tuple[int, int, int] | None:
    """Channels, height and width of the images that a model of a hub takes; None where it takes tokens."""
    config = getattr(model, "config", None)
    if config is None:
        return tuple(getattr(model, "default_cfg", {}).get("input_size", (3, SIDE, SIDE)))
    if getattr(model, "main_input_name", "") != "pixel_values":
        return None
    side = getattr(config, "image_size", None) or SIDE
    height, width = side if isinstance(side, list | tuple) else (side, side)
    return getattr(config, "num_channels", 3), height, width


def places(model: nn.Module | None) -> int:
    """Tokens of a sample: fewer where the model says that it has fewer positions."""
    return min(TOKENS, getattr(getattr(model, "config", None), "max_position_embeddings", None) or TOKENS)


def random_tokens(model: nn.Module, seed: int) -> Batch:
    """Tokens drawn at random, without targets: they say nothing of a language, but the network can be looked at."""
    config: Any = model.config
    words = getattr(config, "vocab_size", None)
    if words is None:
        raise InvalidInputError(f"What {type(model).__name__} takes is not known; name data with --data.")
    tokens = torch.randint(words, (SAMPLES, places(model)), generator=Randomness(seed).child("tokens").torch())
    named = {"input_ids": tokens}
    if getattr(config, "is_encoder_decoder", False):
        named["decoder_input_ids"] = tokens
    return as_batch(named)
