"""How much faster is a path spectrum than one forward pass for each of its coefficients?

A network with p blocks has p + 1 coefficients; interpolating them takes p + 1 forward passes of the network with its
branches scaled. Plain forward passes of the model itself are timed, which is less than such passes would cost. What is
compared is the sum of all coefficients with the output, in float32 (an interpolation would lose every digit).
"""

import torch
from rows import Row, Target
from ways import Way

from skiplens.derivatives.polynomial import PathOrders, expand_signal, frozen_plan
from skiplens.residual import dissect, zoo


def resnet(depth, samples):
    """Pre-activation blocks on 32×32 images."""
    return zoo.build("preact_resnet", depth=depth), torch.randn(samples, 3, 32, 32)


def gpt2(layers, tokens):
    """Two joins a layer, width 768, random weights."""
    import transformers

    config = transformers.GPT2Config(n_layer=layers, vocab_size=1000, bos_token_id=0, eos_token_id=1)
    return transformers.GPT2LMHeadModel(config), {"input_ids": torch.randint(0, 1000, (1, tokens))}


def case(network, size, samples=2, tokens=32):
    torch.manual_seed(0)
    model, inputs = resnet(size, samples) if network == "resnet" else gpt2(size, tokens)
    return model.eval(), inputs


def one_pass(network, size):
    """All coefficients at once; the sum of them is what the network puts out."""
    found = dissect(*case(network, size))
    plan = frozen_plan(found, found.node(found.output))
    return lambda: expand_signal(plan, PathOrders()).stack.sum(0)


def passes(network, size):
    """p + 1 forward passes."""
    model, inputs = case(network, size)
    blocks = (size - 2) // 2 if network == "resnet" else 2 * size

    def run():
        with torch.no_grad():
            for _ in range(blocks + 1):
                found = model(**inputs).logits if isinstance(inputs, dict) else model(inputs)
        return found

    return run


def numbers(output):
    return output.detach()


def _row(network, work, sizes, quick):
    mine = {"module": "path_spectrum", "arguments": {"network": network}, "keep": "numbers", "warm": {"size": quick[0]}}
    return Row(
        f"paths-{network}",
        work,
        Way(function="one_pass", **mine),
        sizes,
        quick,
        {"p + 1 forward passes": Way(function="passes", **mine)},
        "size",
        targets=(Target("≥ 2 ×", "p + 1 forward passes", least=2),),
    )


ROWS = [
    _row("resnet", "path spectrum of a pre-activation ResNet-110, all orders", (20, 56, 110), (8, 14)),
    _row("gpt2", "path spectrum of GPT-2 with 12 layers, all orders", (3, 6, 12), (1, 2)),
]

if __name__ == "__main__":
    from run import run_script

    run_script(__file__)
