"""How much faster is a path spectrum than one forward pass for each of its coefficients?

    python benchmarks/path_spectrum.py [--case resnet110] [--case gpt2] [--samples 4] [--tokens 32] [--threads 1]

A network with p blocks has p + 1 coefficients; interpolating them takes p + 1 forward passes of the network with its
branches scaled. Plain forward passes of the model itself are timed, which is less than such passes would cost. The sum
of the coefficients is compared with the output before anything is timed; the last line is JSON.
"""

import argparse
import json
import warnings

import torch
from infinite_width_gram import best_times, environment, show

from skiplens.derivatives.polynomial import PathOrders, expand_signal, frozen_plan
from skiplens.residual import dissect, zoo


def resnet110(options):
    """54 pre-activation blocks on 32×32 images."""
    return zoo.build("preact_resnet", depth=110), torch.randn(options.samples, 3, 32, 32)


def gpt2(options):
    """12 layers, so 24 joins, of width 768, with random weights."""
    import transformers

    config = transformers.GPT2Config(n_layer=12, vocab_size=1000, bos_token_id=0, eos_token_id=1)
    ids = torch.randint(0, 1000, (1, options.tokens))
    return transformers.GPT2LMHeadModel(config), {"input_ids": ids}


CASES = {"resnet110": resnet110, "gpt2": gpt2}


def measured(name, options):
    """Times of all coefficients in one pass and of p + 1 forward passes."""
    torch.manual_seed(0)
    model, inputs = CASES[name](options)
    network = dissect(model.eval(), inputs)
    plan, blocks = frozen_plan(network, network.node(network.output)), len(network.blocks)

    def passes():
        with torch.no_grad():
            for _ in range(blocks + 1):
                model(**inputs) if isinstance(inputs, dict) else model(inputs)

    expansion = expand_signal(plan, PathOrders())
    error = (expansion.stack.sum(0) - expansion.value).abs().max() / expansion.value.abs().max()
    wall, cpu = best_times(lambda: expand_signal(plan, PathOrders()), options.repetitions)
    passes_wall, passes_cpu = best_times(passes, options.repetitions)
    return {
        "case": name,
        "blocks": blocks,
        "spectrum_cpu_s": cpu,
        "passes_cpu_s": passes_cpu,
        "cpu_ratio": passes_cpu / cpu,
        "spectrum_wall_s": wall,
        "passes_wall_s": passes_wall,
        "error": float(error),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    rows = [measured(name, options) for name in options.case or CASES]
    show(rows)
    print(json.dumps({"environment": environment(), "options": vars(options), "rows": rows}))


if __name__ == "__main__":
    main()
