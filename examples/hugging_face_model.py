"""The residual blocks of a Hugging Face transformer: two in each layer, attention and MLP. Needs transformers."""

import sys

import torch

import skiplens as sl

try:
    from transformers import GPT2Config, GPT2Model
except ImportError:
    sys.exit("transformers is not installed; get it with: pip install transformers")

config = GPT2Config(n_layer=3, n_head=2, n_embd=32, vocab_size=100, n_positions=16, bos_token_id=0, eos_token_id=0)
model = GPT2Model(config).eval()  # a small one with random weights; nothing is fetched
blocks = sl.find_residual_blocks(model, {"input_ids": torch.arange(8)[None]})
print(f"{len(blocks)} residual blocks in {config.n_layer} layers:")
for block in blocks:
    print("  ", block)
