"""Families of networks in small random-init configurations, with their blocks counted by hand from the modelling code.

`blocks` are the outermost residual blocks, `inner` the sums below them that are residual by construction.
"""

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


FAMILIES: dict[str, Family] = {
    "ResNet": Family("ResNetForImageClassification", 4, "2 stages of 2", {**STAGES, "layer_type": "basic"}, images),
    "RegNet-Y": Family(
        "RegNetForImageClassification", 4, "2 stages of 2", {**STAGES, "layer_type": "y", "groups_width": 4}, images
    ),
    "ConvNeXt": Family(
        "ConvNextForImageClassification",
        3,
        "stages of 1 and 2",
        {"num_stages": 2, "hidden_sizes": [8, 16], "depths": [1, 2], "patch_size": 2, "num_labels": 3},
        images,
    ),
    "ConvNeXtV2": Family(
        "ConvNextV2ForImageClassification",
        3,
        "stages of 1 and 2; each has a global response normalisation inside, gamma·n(x) + beta + x",
        {"num_stages": 2, "hidden_sizes": [8, 16], "depths": [1, 2], "patch_size": 2, "num_labels": 3},
        images,
        inner=3,
    ),
    "Swin": Family(
        "SwinForImageClassification",
        6,
        "attention and MLP, 2 in each of 1 + 2 layers",
        {"image_size": 32, "patch_size": 4, "embed_dim": 8, "depths": [1, 2], "num_heads": [1, 2], "window_size": 4},
        images,
    ),
    "Segformer": Family(
        "SegformerForImageClassification",
        4,
        "attention and MLP, 2 in each of 1 + 1 layers",
        {
            "num_encoder_blocks": 2,
            "depths": [1, 1],
            "sr_ratios": [2, 1],
            "hidden_sizes": [8, 16],
            "patch_sizes": [7, 3],
            "strides": [4, 2],
            "num_attention_heads": [1, 2],
            "mlp_ratios": [2, 2],
        },
        images,
    ),
    "MobileViT": Family(
        "MobileViTForImageClassification",
        20,
        "2 of 7 inverted residuals with stride 1 and equal widths, and attention and MLP in 2 + 4 + 3 layers",
        {
            "hidden_sizes": [8, 12, 16],
            "neck_hidden_sizes": [4, 8, 8, 8, 8, 8, 16],
            "num_attention_heads": 2,
            "image_size": 64,
            "mlp_ratio": 1.0,
            "expand_ratio": 1.0,
        },
        lambda: images(64),
    ),
    "MobileViTV2": Family(
        "MobileViTV2ForImageClassification",
        20,
        "2 of 7 inverted residuals with stride 1 and equal widths, and attention and MLP in 2 + 4 + 3 layers",
        {"width_multiplier": 0.25, "image_size": 64, "base_attn_unit_dims": [16, 24, 32], "expand_ratio": 1.0},
        lambda: images(64),
    ),
    "EfficientNet": Family(
        "EfficientNetForImageClassification",
        9,
        "the repeats of the 7 stages beyond the first: 0 + 1 + 1 + 2 + 2 + 3 + 0",
        {"width_coefficient": 0.25, "depth_coefficient": 1.0, "image_size": 32, "hidden_dim": 320, "num_labels": 3},
        images,
    ),
    "MobileNetV2": Family(
        "MobileNetV2ForImageClassification",
        10,
        "inverted residuals with stride 1 and equal widths",
        {"depth_multiplier": 0.25, "image_size": 32, "num_labels": 3},
        images,
    ),
    "ViT": Family("ViTForImageClassification", 4, SUM2, VISION, images),
    "ViT-MAE": Family(
        "ViTMAEForPreTraining",
        6,
        "attention and MLP in 2 encoder and 1 decoder layers",
        {
            **VISION,
            "decoder_hidden_size": 16,
            "decoder_intermediate_size": 24,
            "decoder_num_hidden_layers": 1,
            "decoder_num_attention_heads": 2,
        },
        lambda: {**images(), "noise": torch.rand(SAMPLES, 16, generator=torch.Generator().manual_seed(0))},
    ),
    "BEiT": Family("BeitForImageClassification", 4, SUM2, VISION, images),
    "PoolFormer": Family(
        "PoolFormerForImageClassification",
        4,
        "pooling and MLP, 2 in each of 1 + 1 layers",
        {
            "depths": [1, 1],
            "hidden_sizes": [8, 16],
            "patch_sizes": [7, 3],
            "strides": [4, 2],
            "padding": [2, 1],
            "num_encoder_blocks": 2,
        },
        images,
    ),
    "FocalNet": Family(
        "FocalNetForImageClassification",
        6,
        "modulation and MLP, 2 in each of 1 + 2 layers",
        {
            "embed_dim": 8,
            "hidden_sizes": [8, 16],
            "depths": [1, 2],
            "focal_levels": [2, 2],
            "focal_windows": [3, 3],
            "image_size": 32,
            "patch_size": 4,
        },
        images,
    ),
    "LLaMA": Family("LlamaForCausalLM", 4, SUM2, GROUPED),
    "Mistral": Family("MistralForCausalLM", 4, SUM2, GROUPED),
    "Phi": Family("PhiForCausalLM", 2, PARALLEL, TEXT),
    "GPT-NeoX": Family("GPTNeoXForCausalLM", 2, PARALLEL, TEXT),
    "Falcon": Family(
        "FalconForCausalLM",
        2,
        PARALLEL,
        {
            "vocab_size": 50,
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "bos_token_id": 0,
            "eos_token_id": 1,
        },
    ),
    "OLMo": Family("OlmoForCausalLM", 4, SUM2, TEXT),
    "BLOOM": Family("BloomForCausalLM", 4, SUM2, {"vocab_size": 50, "hidden_size": 16, "n_layer": 2, "n_head": 2}),
    "OPT": Family(
        "OPTForCausalLM",
        4,
        SUM2,
        {
            **WORDS,
            "hidden_size": 16,
            "ffn_dim": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "max_position_embeddings": 16,
            "word_embed_proj_dim": 16,
        },
    ),
    "BERT": Family("BertForSequenceClassification", 4, SUM2, TEXT),
    "DeBERTa-v2": Family(
        "DebertaV2ForSequenceClassification",
        4,
        SUM2,
        {**TEXT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    ),
    "FNet": Family(
        "FNetForSequenceClassification",
        4,
        "Fourier transform and MLP, 2 in each of 2 layers",
        {k: v for k, v in TEXT.items() if k != "num_attention_heads"},
    ),
    "Funnel": Family(
        "FunnelForSequenceClassification",
        4,
        SUM2,
        {
            **WORDS,
            "block_sizes": [1, 1],
            "d_model": 16,
            "n_head": 2,
            "d_head": 8,
            "d_inner": 24,
            "num_decoder_layers": 1,
        },
    ),
    "XLNet": Family(
        "XLNetForSequenceClassification", 4, SUM2, {**WORDS, "d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 24}
    ),
    "Longformer": Family(
        "LongformerForSequenceClassification", 4, SUM2, {**TEXT, "attention_window": 4, "max_position_embeddings": 32}
    ),
    "Reformer": Family(
        "ReformerForSequenceClassification",
        4,
        "reversible attention and MLP, 2 in each of 2 layers",
        {
            "vocab_size": 50,
            "hidden_size": 16,
            "num_attention_heads": 2,
            "attention_head_size": 8,
            "feed_forward_size": 24,
            "attn_layers": ["local", "local"],
            "local_attn_chunk_length": 4,
            "axial_pos_shape": [2, 4],
            "axial_pos_embds_dim": [8, 8],
            "max_position_embeddings": 8,
            "is_decoder": False,
            "pad_token_id": 2,
            "eos_token_id": 1,
        },
    ),
    "Mixtral": Family(
        "MixtralForCausalLM", 4, SUM2 + "; the experts' outputs are gathered", {**GROUPED, "num_local_experts": 4}
    ),
    "Qwen2-MoE": Family(
        "Qwen2MoeForCausalLM",
        4,
        SUM2 + "; the experts' outputs are gathered",
        {
            **GROUPED,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "shared_expert_intermediate_size": 16,
        },
    ),
    "DeepSeek-V3": Family(
        "DeepseekV3ForCausalLM",
        4,
        SUM2 + "; the experts' outputs are gathered",
        {
            **TEXT,
            "num_key_value_heads": 2,
            "moe_intermediate_size": 16,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_group": 2,
            "topk_group": 1,
            "first_k_dense_replace": 1,
            "kv_lora_rank": 8,
            "q_lora_rank": 8,
            "qk_rope_head_dim": 4,
            "qk_nope_head_dim": 4,
            "v_head_dim": 8,
        },
    ),
    "Mamba": Family(
        "MambaForCausalLM",
        2,
        "1 in each of 2 layers; each skips its scan by D·x",
        {
            "vocab_size": 50,
            "hidden_size": 16,
            "state_size": 4,
            "num_hidden_layers": 2,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "pad_token_id": 2,
        },
        inner=2,
    ),
    "Mamba2": Family(
        "Mamba2ForCausalLM",
        2,
        "1 in each of 2 layers; each skips its scan by D·x",
        {
            "vocab_size": 50,
            "hidden_size": 16,
            "state_size": 4,
            "num_hidden_layers": 2,
            "num_heads": 4,
            "head_dim": 8,
            "n_groups": 1,
            "expand": 2,
            "chunk_size": 4,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "pad_token_id": 2,
        },
        inner=2,
    ),
    "RWKV": Family(
        "RwkvForCausalLM",
        4,
        "time mixing and channel mixing, 2 in each of 2 layers",
        {
            "vocab_size": 50,
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "attention_hidden_size": 16,
            "intermediate_size": 24,
            "context_length": 16,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "rescale_every": 0,
        },
    ),
    "RecurrentGemma": Family(
        "RecurrentGemmaForCausalLM",
        6,
        "mixing and MLP, 2 in each of 3 layers",
        {
            **WORDS,
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "lru_width": 16,
            "attention_window_size": 8,
            "num_key_value_heads": 1,
            "head_dim": 8,
        },
    ),
    "CLIP": Family(
        "CLIPModel",
        8,
        "attention and MLP, 2 in each of 2 layers of each tower",
        {
            "text_config": {**TEXT, "projection_dim": 8},
            "vision_config": {**VISION, "projection_dim": 8},
            "projection_dim": 8,
        },
        lambda: {"input_ids": tokens(), **images()},
    ),
    "SAM": Family(
        "SamModel",
        12,
        "2 in each of 2 vision layers; 3, 4 and a last one in the mask decoder",
        {
            "vision_config": {
                "hidden_size": 16,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "image_size": 32,
                "patch_size": 8,
                "output_channels": 16,
                "global_attn_indexes": [1],
                "window_size": 2,
                "mlp_dim": 24,
                "num_pos_feats": 8,
            },
            "prompt_encoder_config": {"hidden_size": 16, "image_size": 32, "patch_size": 8, "mask_input_channels": 4},
            "mask_decoder_config": {
                "hidden_size": 16,
                "num_attention_heads": 2,
                "mlp_dim": 24,
                "iou_head_hidden_dim": 16,
            },
        },
        lambda: {**images(), "input_points": normal(1, 2, 2)},
    ),
    "Perceiver": Family(
        "PerceiverForSequenceClassification",
        8,
        "latents and MLP of the encoder's cross-attention, 2 in each of 2 layers, query and MLP of the decoder's",
        {
            "num_latents": 4,
            "d_latents": 16,
            "d_model": 16,
            "num_blocks": 1,
            "num_self_attends_per_block": 2,
            "num_self_attention_heads": 2,
            "num_cross_attention_heads": 2,
            "vocab_size": 50,
            "max_position_embeddings": 16,
            "num_labels": 3,
        },
        lambda: {"inputs": tokens()},
    ),
    "T5": Family(
        "T5ForConditionalGeneration",
        5,
        CROSS,
        {
            "vocab_size": 50,
            "d_model": 16,
            "d_kv": 8,
            "d_ff": 24,
            "num_layers": 1,
            "num_heads": 2,
            "decoder_start_token_id": 0,
        },
        both,
    ),
    "BART": Family("BartForConditionalGeneration", 5, CROSS, {**ENCODER_DECODER, "max_position_embeddings": 16}, both),
    "Whisper": Family(
        "WhisperForConditionalGeneration",
        5,
        CROSS,
        {**ENCODER_DECODER, "num_mel_bins": 8, "max_source_positions": 8, "max_target_positions": 16},
        lambda: {"input_features": normal(8, 16), "decoder_input_ids": tokens()},
    ),
    "Wav2Vec2": Family(
        "Wav2Vec2ForSequenceClassification",
        5,
        "positional convolution, attention and MLP in 2 layers",
        {
            **SIZES,
            "conv_dim": [8, 8],
            "conv_stride": [5, 2],
            "conv_kernel": [10, 3],
            "num_conv_pos_embeddings": 4,
            "num_conv_pos_embedding_groups": 2,
            "vocab_size": 20,
            "num_feat_extract_layers": 2,
            "classifier_proj_size": 8,
        },
        lambda: {"input_values": normal(200)},
    ),
    "PatchTST": Family(
        "PatchTSTForPrediction",
        4,
        SUM2,
        {
            "d_model": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "ffn_dim": 24,
            "context_length": 16,
            "patch_length": 4,
            "patch_stride": 4,
            "num_input_channels": 2,
            "prediction_length": 4,
        },
        lambda: {"past_values": normal(16, 2)},
    ),
    "GPT-2": Family("GPT2LMHeadModel", 4, SUM2, {**WORDS, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}),
    "GPT-J": Family(
        "GPTJForCausalLM",
        2,
        PARALLEL,
        {**WORDS, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2, "rotary_dim": 4},
    ),
    "Gemma2": Family("Gemma2ForCausalLM", 4, SUM2 + ", normalised before and after", {**GROUPED, "head_dim": 8}),
    "Qwen2": Family("Qwen2ForCausalLM", 4, SUM2, GROUPED),
    "Phi3": Family("Phi3ForCausalLM", 4, SUM2, GROUPED),
    "Cohere": Family("CohereForCausalLM", 2, PARALLEL, GROUPED),
    "StableLM": Family("StableLmForCausalLM", 4, SUM2, GROUPED),
    "ALBERT": Family("AlbertForSequenceClassification", 4, SUM2 + ", which are one", {**TEXT, "embedding_size": 8}),
    "ELECTRA": Family("ElectraForSequenceClassification", 4, SUM2, {**TEXT, "embedding_size": 8}),
    "RoBERTa": Family("RobertaForSequenceClassification", 4, SUM2, {**TEXT, "max_position_embeddings": 32}),
    "DistilBERT": Family(
        "DistilBertForSequenceClassification",
        4,
        SUM2,
        {"vocab_size": 50, "dim": 16, "hidden_dim": 24, "n_layers": 2, "n_heads": 2, "max_position_embeddings": 16},
    ),
    "MPNet": Family("MPNetForSequenceClassification", 4, SUM2, {**TEXT, "max_position_embeddings": 32}),
    "ConvBERT": Family("ConvBertForSequenceClassification", 4, SUM2, {**TEXT, "embedding_size": 16, "head_ratio": 1}),
    "DeiT": Family("DeiTForImageClassification", 4, SUM2, VISION, images),
    "DINOv2": Family("Dinov2ForImageClassification", 4, SUM2, VISION, images),
    "BiT": Family("BitForImageClassification", 4, "2 stages of 2", {**STAGES, "num_groups": 2}, images),
    "HuBERT": Family(
        "HubertForSequenceClassification",
        5,
        "positional convolution, attention and MLP in 2 layers",
        {
            **SIZES,
            "conv_dim": [8, 8],
            "conv_stride": [5, 2],
            "conv_kernel": [10, 3],
            "num_conv_pos_embeddings": 4,
            "num_conv_pos_embedding_groups": 2,
            "num_feat_extract_layers": 2,
            "classifier_proj_size": 8,
        },
        lambda: {"input_values": normal(200)},
    ),
    "Marian": Family("MarianMTModel", 5, CROSS, {**ENCODER_DECODER, "max_position_embeddings": 16}, both),
    "Pegasus": Family(
        "PegasusForConditionalGeneration", 5, CROSS, {**ENCODER_DECODER, "max_position_embeddings": 16}, both
    ),
}
