"""What does `inspect` cost on models of real size, and with how many samples does each lens look?

    python benchmarks/large_models.py gpt2 vit-base        # all lenses, on the processor
    python benchmarks/large_models.py llama-1b --device cuda --dtype bfloat16 \\
        --lenses structure,signal,paths,curvature,forecast

Models of `transformers` from their configurations, with random weights and random data; a process for each, so that
its peak of memory is its own.
"""

import argparse
import json
import resource
import time
from multiprocessing import get_context
from pathlib import Path

import torch
from measuring import environment, show

TOKENS, VOCABULARY, CLASSES = 128, 1000, 1000


def gpt2():
    """GPT-2 with 124 million parameters, and 8 texts of 128 tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config()), language


def vit_base():
    """ViT-base for images of 224 × 224."""
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(ViTConfig(num_labels=CLASSES)), images


def resnet50():
    """ResNet-50 for images of 224 × 224."""
    from transformers import ResNetConfig, ResNetForImageClassification

    return ResNetForImageClassification(ResNetConfig(num_labels=CLASSES)), images


def llama_1b(width=2048, vocabulary=32000):
    """A model like TinyLlama: 22 layers, 2,048 wide, 1.1 billion parameters."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": width, "intermediate_size": 11 * width // 4, "num_hidden_layers": 22}
    heads = {"num_attention_heads": width // 64, "num_key_value_heads": max(1, width // 512)}
    return LlamaForCausalLM(LlamaConfig(vocab_size=vocabulary, **sizes, **heads)), language


def llama_small():
    """The same with 4 million parameters, to try the way on a processor."""
    return llama_1b(128, VOCABULARY)


def language(count, device, dtype):
    """Texts of random tokens, and the same as targets."""
    tokens = torch.randint(VOCABULARY, (count, TOKENS), device=device)
    return {"input_ids": tokens, "labels": tokens}


def images(count, device, dtype):
    """Random images and labels."""
    return torch.randn(count, 3, 224, 224, device=device, dtype=dtype), torch.arange(count, device=device) % CLASSES


MODELS = {"gpt2": gpt2, "vit-base": vit_base, "resnet50": resnet50, "llama-1b": llama_1b, "llama-small": llama_small}


def looked_at(name, options):
    """The row of one model: what it cost, lens by lens, and what was said."""
    import skiplens as sl
    from skiplens.report.lenses import samples_of

    torch.manual_seed(0)
    with torch.device(options.device):
        model, data_of = MODELS[name]()
    dtype = getattr(torch, options.dtype)
    model, data = model.to(dtype), data_of(options.samples, options.device, dtype)
    begun, cpu = time.perf_counter(), time.process_time()
    report = sl.inspect(model, data, name=name, lenses=options.lenses.split(",") if options.lenses else ())
    lenses = {
        reading.kind: {
            "seconds": reading.provenance.seconds,
            "samples": samples_of(reading),
            "notes": list(getattr(reading, "notes", ())),
        }
        for reading in report.readings
    }
    on_gpu = options.device == "cuda"
    return {
        "model": name,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "dtype": options.dtype,
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "threads": torch.get_num_threads(),
        "wall_s": time.perf_counter() - begun,
        "cpu_s": time.process_time() - cpu,
        "peak_GiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "gpu_GiB": torch.cuda.max_memory_allocated() / 2**30 if on_gpu else None,
        "lenses": lenses,
        "problems": {problem.lens: problem.message for problem in report.problems},
        "findings": [finding.rule for finding in report.findings],
        "words": str(report),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", choices=MODELS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--lenses", default="", help="names with commas between them; all by default")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for name in options.models:
        with get_context("spawn").Pool(1) as pool:
            rows.append(pool.apply(looked_at, (name, options)))
        print(rows[-1]["words"], flush=True)
        if options.json:
            options.json.write_text(json.dumps({"environment": environment(), "rows": rows}, indent=1) + "\n")
    show([{key: value for key, value in row.items() if not isinstance(value, (dict, list, str))} for row in rows])
    for row in rows:
        print(row["model"], json.dumps(row["lenses"], indent=1), json.dumps(row["problems"], indent=1))


if __name__ == "__main__":
    main()
