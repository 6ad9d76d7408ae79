"""Tiny Hugging Face models with random weights, built from their configurations; nothing is downloaded."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import nn

SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
WORDS = {"vocab_size": 50, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
STAGES = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [2, 2], "num_labels": 3}


def tokens() -> torch.Tensor:
    return torch.randint(3, 50, (2, 5), generator=torch.Generator().manual_seed(0))


def pixels() -> torch.Tensor:
    return torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def resnet_basic() -> tuple[nn.Module, Any]:
    config = transformers.ResNetConfig(layer_type="basic", **STAGES)
    return transformers.ResNetForImageClassification(config), pixels()


def resnet_bottleneck() -> tuple[nn.Module, Any]:
    config = transformers.ResNetConfig(layer_type="bottleneck", **STAGES)
    return transformers.ResNetForImageClassification(config), pixels()


def regnet() -> tuple[nn.Module, Any]:
    config = transformers.RegNetConfig(layer_type="y", groups_width=4, **STAGES)
    return transformers.RegNetForImageClassification(config), pixels()


def convnext() -> tuple[nn.Module, Any]:
    config = transformers.ConvNextConfig(num_stages=2, hidden_sizes=[8, 16], depths=[2, 2], patch_size=2, num_labels=3)
    return transformers.ConvNextForImageClassification(config), pixels()


def vit() -> tuple[nn.Module, Any]:
    config = transformers.ViTConfig(image_size=16, patch_size=8, num_labels=3, **SIZES)
    return transformers.ViTForImageClassification(config), pixels()


def gpt2() -> tuple[nn.Module, Any]:
    config = transformers.GPT2Config(n_positions=8, n_embd=16, n_layer=2, n_head=2, **WORDS)
    return transformers.GPT2LMHeadModel(config), {"input_ids": tokens()}


def llama() -> tuple[nn.Module, Any]:
    config = transformers.LlamaConfig(num_key_value_heads=1, max_position_embeddings=8, **SIZES, **WORDS)
    return transformers.LlamaForCausalLM(config), {"input_ids": tokens()}


def bert() -> tuple[nn.Module, Any]:
    config = transformers.BertConfig(max_position_embeddings=8, **SIZES, **WORDS)
    inputs = {"input_ids": tokens(), "attention_mask": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])}
    return transformers.BertModel(config), inputs


def albert() -> tuple[nn.Module, Any]:
    config = transformers.AlbertConfig(embedding_size=8, max_position_embeddings=8, **SIZES, **WORDS)
    return transformers.AlbertModel(config), {"input_ids": tokens()}


def gptj() -> tuple[nn.Module, Any]:
    config = transformers.GPTJConfig(n_positions=8, n_embd=16, n_layer=2, n_head=2, rotary_dim=4, **WORDS)
    return transformers.GPTJModel(config), {"input_ids": tokens()}


def t5() -> tuple[nn.Module, Any]:
    config = transformers.T5Config(vocab_size=50, d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2)
    return transformers.T5Model(config), {"input_ids": tokens(), "decoder_input_ids": tokens()}


def deberta() -> tuple[nn.Module, Any]:
    config = transformers.DebertaV2Config(
        relative_attention=True, pos_att_type=["p2c", "c2p"], max_position_embeddings=8, **SIZES, **WORDS
    )
    return transformers.DebertaV2Model(config), {"input_ids": tokens()}


def built(build: Callable[[], tuple[nn.Module, Any]], seed: int = 0) -> tuple[nn.Module, Any]:
    """The model in eval mode with weights from `seed`, and inputs for it; the global generator stays as it was."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the library's own imports
        torch.manual_seed(seed)
        model, inputs = build()
    return model.eval(), inputs
