"""Families that were tried later, their blocks counted by hand as in `tests.families.table`."""

import torch
from transformers import ResNetConfig

from tests.families.family import (
    CROSS,
    ENCODER_DECODER,
    GROUPED,
    SAMPLES,
    SIZES,
    SUM2,
    TEXT,
    VISION,
    WORDS,
    Family,
    both,
    images,
    normal,
    pixels,
    tokens,
)

FRAMES = {**VISION, "num_frames": 2}
SCAN = {"mamba_d_state": 4, "mamba_expand": 2}
WAVES = {
    **SIZES,
    "conv_dim": [8, 8],
    "conv_stride": [5, 2],
    "conv_kernel": [10, 3],
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "num_feat_extract_layers": 2,
    "classifier_proj_size": 8,
    "vocab_size": 20,
}


def small_resnet(depths: list[int], *stages: str) -> ResNetConfig:
    sizes = [8, 16, 16, 16][: len(depths)]
    return ResNetConfig(
        embedding_size=8, hidden_sizes=sizes, depths=depths, layer_type="basic", out_features=list(stages)
    )


DETECTOR = {
    "use_timm_backbone": False,
    "backbone": None,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "num_queries": 5,
    "num_labels": 3,
}
DETECTED = "2 + 1 in the backbone, 2 in the encoder's layer, 2 in the decoder's, whose first sum adds to zeros"


def boxes() -> torch.Tensor:
    corners = torch.randint(0, 500, (SAMPLES, 8, 2), generator=torch.Generator().manual_seed(0))
    return torch.cat([corners, corners + 100], -1)


def video() -> dict[str, torch.Tensor]:
    return {"pixel_values": normal(2, 3, 32, 32)}


def series(kind: str) -> Family:
    """An encoder and a decoder of numbers over time, which return the parameters of a distribution."""
    sizes = {name: value for name, value in ENCODER_DECODER.items() if not name.endswith("token_id")}
    sizes |= {"encoder_layers": 2, "prediction_length": 4, "context_length": 8, "lags_sequence": [1, 2]}

    def inputs() -> dict[str, torch.Tensor]:
        past, future = normal(10, 2), normal(4, 2)
        found = {
            "past_values": past[..., 0],
            "past_time_features": past,
            "past_observed_mask": torch.ones(past.shape[:2]),
        }
        return {**found, "future_values": future[..., 0], "future_time_features": future}

    config = {key: value for key, value in sizes.items() if key != "vocab_size"} | {"num_time_features": 2}
    return Family(f"{kind}Model", 7, "2 in each of 2 encoder layers, 3 in a decoder layer", config, inputs)


NEWER: dict[str, Family] = {
    "Qwen3": Family("Qwen3ForCausalLM", 4, SUM2, {**GROUPED, "head_dim": 8}),
    "Gemma3": Family(
        "Gemma3ForCausalLM",
        4,
        SUM2 + ", normalised before and after",
        {**GROUPED, "head_dim": 8},
        configuration="Gemma3TextConfig",
    ),
    "OLMo2": Family("Olmo2ForCausalLM", 4, SUM2 + ", normalised after", TEXT),
    "Granite": Family("GraniteForCausalLM", 4, SUM2 + ", scaled", {**GROUPED, "residual_multiplier": 0.5}),
    "StarCoder2": Family("Starcoder2ForCausalLM", 4, SUM2, GROUPED),
    "GPT-BigCode": Family(
        "GPTBigCodeForCausalLM", 4, SUM2, {**WORDS, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}
    ),
    "BigBird": Family("BigBirdForSequenceClassification", 4, SUM2, {**TEXT, "attention_type": "original_full"}),
    "Data2Vec": Family("Data2VecTextForSequenceClassification", 4, SUM2, {**TEXT, "max_position_embeddings": 32}),
    "SqueezeBERT": Family(
        "SqueezeBertForSequenceClassification",
        4,
        SUM2,
        {**TEXT, "embedding_size": 16, "post_attention_groups": 1}
        | {f"{part}_groups": 2 for part in ("q", "k", "v", "intermediate", "output")},
    ),
    "MobileBERT": Family(
        "MobileBertForSequenceClassification",
        2,
        "1 around each of 2 layers; attention and 2 MLPs inside, between the bottleneck's projections",
        {
            **TEXT,
            "embedding_size": 16,
            "intra_bottleneck_size": 8,
            "true_hidden_size": 8,
            "num_feedforward_networks": 2,
        },
        inner=6,
    ),
    "TAPAS": Family("TapasForSequenceClassification", 4, SUM2, TEXT),
    "LayoutLM": Family(
        "LayoutLMForSequenceClassification",
        4,
        SUM2,
        {**TEXT, "max_2d_position_embeddings": 1024},
        lambda: {"input_ids": tokens(), "bbox": boxes()},
    ),
    "Jamba": Family(
        "JambaForCausalLM",
        4,
        "mixing and MLP in a Mamba layer, which skips its scan, and in one of attention",
        {
            **GROUPED,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "num_experts": 2,
            "mamba_d_state": 4,
            "mamba_dt_rank": 2,
            "use_mamba_kernels": False,
        },
        inner=1,
    ),
    "Bamba": Family(
        "BambaForCausalLM",
        4,
        "mixing and MLP in a Mamba layer, which skips its scan, and in one of attention",
        {
            **GROUPED,
            **SCAN,
            "attn_layer_indices": [1],
            "mamba_n_heads": 4,
            "mamba_d_head": 8,
            "mamba_n_groups": 1,
            "mamba_chunk_size": 4,
        },
        inner=1,
    ),
    "FalconMamba": Family(
        "FalconMambaForCausalLM",
        2,
        "1 in each of 2 layers; each skips its scan by D·x",
        {**WORDS, "hidden_size": 16, "state_size": 4, "num_hidden_layers": 2},
        inner=2,
    ),
    "mBART": Family(
        "MBartForConditionalGeneration", 5, CROSS, {**ENCODER_DECODER, "max_position_embeddings": 16}, both
    ),
    "M2M100": Family(
        "M2M100ForConditionalGeneration", 5, CROSS, {**ENCODER_DECODER, "max_position_embeddings": 16}, both
    ),
    "ProphetNet": Family(
        "ProphetNetForConditionalGeneration",
        5,
        CROSS,
        {
            "vocab_size": 50,
            "hidden_size": 16,
            "encoder_ffn_dim": 24,
            "decoder_ffn_dim": 24,
            "num_encoder_layers": 1,
            "num_decoder_layers": 1,
            "num_encoder_attention_heads": 2,
            "num_decoder_attention_heads": 2,
            "max_position_embeddings": 16,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "pad_token_id": 2,
            "decoder_start_token_id": 0,
        },
        both,
    ),
    "TimeSeriesTransformer": series("TimeSeriesTransformer"),
    "Informer": series("Informer"),
    "Nystromformer": Family(
        "NystromformerForSequenceClassification",
        4,
        SUM2,
        {**TEXT, "segment_means_seq_len": 8, "num_landmarks": 4, "conv_kernel_size": 3},
    ),
    "LED": Family(
        "LEDForConditionalGeneration",
        5,
        CROSS,
        {
            **ENCODER_DECODER,
            "max_encoder_position_embeddings": 16,
            "max_decoder_position_embeddings": 16,
            "attention_window": 4,
        },
        both,
    ),
    "Speech2Text": Family(
        "Speech2TextForConditionalGeneration",
        5,
        CROSS,
        {
            **ENCODER_DECODER,
            "input_feat_per_channel": 8,
            "input_channels": 1,
            "conv_channels": 16,
            "num_conv_layers": 1,
            "conv_kernel_sizes": [3],
            "max_source_positions": 16,
            "max_target_positions": 16,
        },
        lambda: {"input_features": normal(16, 8), "decoder_input_ids": tokens()},
    ),
    "SEW": Family(
        "SEWForSequenceClassification",
        5,
        "positional convolution beside a pool, attention and MLP in 2 layers",
        {**WAVES, "squeeze_factor": 2},
        lambda: {"input_values": normal(200)},
    ),
    "UniSpeech": Family(
        "UniSpeechForSequenceClassification",
        5,
        "positional convolution, attention and MLP in 2 layers",
        WAVES,
        lambda: {"input_values": normal(200)},
    ),
    "AST": Family(
        "ASTForAudioClassification",
        4,
        SUM2,
        {**SIZES, "patch_size": 4, "frequency_stride": 4, "time_stride": 4, "max_length": 16, "num_mel_bins": 8},
        lambda: {"input_values": normal(16, 8)},
    ),
    "VideoMAE": Family("VideoMAEForVideoClassification", 4, SUM2, {**FRAMES, "tubelet_size": 2}, video),
    "TimeSformer": Family(
        "TimesformerForVideoClassification",
        6,
        "attention in time and in space, and MLP, in 2 layers",
        FRAMES,
        video,
    ),
    "Hiera": Family(
        "HieraForImageClassification",
        6,
        "attention and MLP, 2 in each of 1 + 2 layers, once beside a pooled projection",
        {
            "embed_dim": 8,
            "image_size": [32, 32],
            "patch_size": [7, 7],
            "patch_stride": [4, 4],
            "patch_padding": [3, 3],
            "depths": [1, 2],
            "num_heads": [1, 2],
            "masked_unit_size": [4, 4],
            "query_stride": [2, 2],
            "num_query_pool": 1,
            "mlp_ratio": 2.0,
        },
        images,
    ),
    "PVT": Family(
        "PvtForImageClassification",
        4,
        "attention and MLP, 2 in each of 1 + 1 layers",
        {
            "image_size": 32,
            "num_encoder_blocks": 2,
            "depths": [1, 1],
            "sequence_reduction_ratios": [2, 1],
            "hidden_sizes": [8, 16],
            "patch_sizes": [4, 2],
            "strides": [4, 2],
            "num_attention_heads": [1, 2],
            "mlp_ratios": [2, 2],
        },
        images,
    ),
    "LeViT": Family(
        "LevitForImageClassification",
        8,
        "attention and MLP in 3 layers, and an MLP after each of 2 changes of size",
        {
            "image_size": 32,
            "hidden_sizes": [16, 24, 32],
            "num_attention_heads": [2, 2, 2],
            "depths": [1, 1, 1],
            "key_dim": [4, 4, 4],
            "attention_ratio": [2, 2, 2],
            "mlp_ratio": [2, 2, 2],
        },
        images,
    ),
    "CvT": Family(
        "CvtForImageClassification",
        6,
        "attention and MLP, 2 in each of 1 + 2 layers",
        {
            "embed_dim": [8, 16],
            "num_heads": [1, 2],
            "depth": [1, 2],
            "patch_sizes": [7, 3],
            "patch_stride": [4, 2],
            "patch_padding": [2, 1],
            "mlp_ratio": [2.0, 2.0],
            "qkv_bias": [True, True],
            "cls_token": [False, True],
            "qkv_projection_method": ["dw_bn", "dw_bn"],
            **{name: [3, 3] for name in ("kernel_qkv", "stride_kv")},
            **{name: [1, 1] for name in ("padding_kv", "padding_q", "stride_q")},
            **{name: [0.0, 0.0] for name in ("attention_drop_rate", "drop_rate", "drop_path_rate")},
        },
        images,
    ),
    "SwiftFormer": Family(
        "SwiftFormerForImageClassification",
        12,
        "convolution, attention and MLP in each of 4 layers; each attention adds its queries again",
        {"image_size": 64, "depths": [1, 1, 1, 1], "embed_dims": [8, 8, 16, 16], "mlp_ratio": 2},
        lambda: images(64),
        inner=4,
    ),
    "Swin2SR": Family(
        "Swin2SRForImageSuperResolution",
        1,
        "1 around the whole body; 1 around each of 2 stages, attention and MLP in each",
        {"image_size": 16, "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4, "upscale": 2},
        lambda: images(16),
        inner=6,
    ),
    "UperNet": Family(
        "UperNetForSemanticSegmentation",
        5,
        "2 + 1 + 1 + 1 in the backbone; the head sums features of several sizes, which is no block",
        {
            "backbone_config": small_resnet([2, 1, 1, 1], "stage1", "stage2", "stage3", "stage4"),
            "hidden_size": 8,
            "pool_scales": [1, 2],
            "use_auxiliary_head": False,
            "num_labels": 3,
        },
        images,
    ),
    "SegGPT": Family(
        "SegGptForImageSegmentation",
        4,
        SUM2,
        {
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": [32, 16],
            "patch_size": 8,
            "mlp_dim": 24,
            "decoder_hidden_size": 8,
            "pretrain_image_size": 16,
            "intermediate_hidden_state_indices": [0, 1],
            "merge_index": 0,
        },
        lambda: {"pixel_values": pixels(16), "prompt_pixel_values": pixels(16), "prompt_masks": pixels(16)},
    ),
    "DPT": Family(
        "DPTForDepthEstimation",
        15,
        "2 in each of 4 layers, 7 residual units of the fusion; its sums of features of several sizes are no blocks",
        {
            **VISION,
            "num_hidden_layers": 4,
            "backbone_out_indices": [0, 1, 2, 3],
            "is_hybrid": False,
            "neck_hidden_sizes": [4, 8, 16, 16],
            "fusion_hidden_size": 8,
            "reassemble_factors": [4, 2, 1, 0.5],
        },
        images,
    ),
    "DETR": Family(
        "DetrForObjectDetection", 7, DETECTED, {**DETECTOR, "backbone_config": small_resnet([2, 1], "stage2")}, images
    ),
    "Table Transformer": Family(
        "TableTransformerForObjectDetection",
        7,
        DETECTED,
        {**DETECTOR, "backbone_config": small_resnet([2, 1], "stage2")},
        images,
    ),
    "BLIP": Family(
        "BlipModel",
        8,
        "attention and MLP, 2 in each of 2 layers of each tower",
        {"text_config": {**TEXT, "encoder_hidden_size": 16}, "vision_config": VISION, "projection_dim": 8},
        lambda: {"input_ids": tokens(), **images()},
    ),
    "SigLIP": Family(
        "SiglipModel",
        9,
        "attention and MLP, 2 in each of 2 layers of each tower, and the MLP of the pooling head",
        {"text_config": {**TEXT, "projection_size": 16}, "vision_config": VISION},
        lambda: {"input_ids": tokens(), **images()},
    ),
    "FLAVA": Family(
        "FlavaModel",
        12,
        "attention and MLP, 2 in each of 2 layers of three towers",
        {
            "text_config": TEXT,
            "image_config": VISION,
            "multimodal_config": SIZES,
            "projection_dim": 8,
            "hidden_size": 16,
        },
        lambda: {"input_ids": tokens(), **images()},
    ),
}
