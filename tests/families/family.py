"""A family of networks: how it is built, what it is fed, and settings that several have in common."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import nn

SAMPLES = 6


def tokens(length: int = 8) -> torch.Tensor:
    return torch.randint(5, 50, (SAMPLES, length), generator=torch.Generator().manual_seed(0))


def pixels(size: int = 32, channels: int = 3) -> torch.Tensor:
    return torch.randn(SAMPLES, channels, size, size, generator=torch.Generator().manual_seed(0))


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(SAMPLES, *shape, generator=torch.Generator().manual_seed(0))


def words(**others: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"input_ids": tokens(), **others}


def images(size: int = 32) -> dict[str, torch.Tensor]:
    return {"pixel_values": pixels(size)}


@dataclass(frozen=True)
class Family:
    """One family: how it is built, what it is fed, and the blocks that its code has."""

    model: str
    blocks: int
    counted: str  # how: what is added where
    config: dict[str, Any] = field(default_factory=dict)
    inputs: Callable[[], dict[str, torch.Tensor]] = words
    inner: int = 0
    configuration: str = ""  # the class of the configuration where its name does not follow from the model's

    def build(self) -> tuple[nn.Module, dict[str, torch.Tensor]]:
        """The model in eval mode, the same whenever it is built, and inputs; the global generator stays as it was."""
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the library's own
            torch.manual_seed(0)
            kind = getattr(transformers, self.model)
            chosen = getattr(transformers, self.configuration) if self.configuration else kind.config_class
            model = kind(chosen(**self.config))
        return model.eval(), self.inputs()

    def data(self) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """Inputs, and targets that fit the outputs: whole numbers for scores, real ones for all else."""
        model, inputs = self.build()
        with torch.no_grad():
            outputs = model(**inputs)
        real = [v for v in outputs.values() if isinstance(v, torch.Tensor) and v.is_floating_point() and v.ndim]
        first = outputs["logits"] if "logits" in outputs else real[0]
        generator = torch.Generator().manual_seed(1)
        if "logits" in outputs and first.ndim in (2, 3):
            return inputs, torch.randint(0, first.shape[-1], first.shape[:-1], generator=generator)
        return inputs, torch.randn(first.shape, generator=generator)


WORDS = {"vocab_size": 50, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
TEXT = {**SIZES, **WORDS, "max_position_embeddings": 16}
GROUPED = {**TEXT, "num_key_value_heads": 1}
VISION = {**SIZES, "image_size": 32, "patch_size": 8, "num_labels": 3}
STAGES = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [2, 2], "num_labels": 3}
SUM2 = "attention and MLP, 2 in each of 2 layers"
PARALLEL = "attention and MLP beside each other, 1 in each of 2 layers"
ENCODER_DECODER = {"vocab_size": 50, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "bos_token_id": 0}
ENCODER_DECODER |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 24}
ENCODER_DECODER |= {"decoder_ffn_dim": 24, "pad_token_id": 2, "eos_token_id": 1, "decoder_start_token_id": 0}
CROSS = "2 in an encoder layer, 3 in a decoder layer"


def both() -> dict[str, torch.Tensor]:
    return {"input_ids": tokens(), "decoder_input_ids": tokens()}
