"""How much faster is a path spectrum than one forward pass for each of its coefficients?

A network with p blocks has p + 1 coefficients. To interpolate them takes p + 1 passes with every branch times a
number t and all gates and norms held where the model itself has them. Such a pass does all multiplications of a
forward pass, a product at each gate and at each join besides, and through our own interpreter it takes 3.3 times as
long as a forward pass of the model (ResNet-110 and GPT-2 alike). Timed in their place are p + 1 plain forward passes
by torch, without any of that and without the interpolation, so the comparison is in their favour. One pass with all
coefficients does half of their multiplications.

What is compared is the sum of all coefficients with the output, in float64 (an interpolation would lose every digit),
on one thread. Two images of 32×32 pixels, or one text of 32 tokens.
"""

import torch
from rows import Floor, Row, Target
from ways import Way

from skiplens import zoo
from skiplens.graph.dissect import dissect
from skiplens.paths.forward import PathOrders, expand_signal
from skiplens.paths.plan import frozen_plan

IMAGES, TOKENS = 2, 32


def resnet(layers):
    """Pre-activation blocks on small images."""
    return zoo.build("preact_resnet", depth=layers), torch.randn(IMAGES, 3, 32, 32).double()


def gpt2(layers):
    """Two joins a layer, width 768, random weights."""
    import transformers

    config = transformers.GPT2Config(n_layer=layers, vocab_size=1000, bos_token_id=0, eos_token_id=1)
    return transformers.GPT2LMHeadModel(config), {"input_ids": torch.randint(0, 1000, (1, TOKENS))}


def case(network, layers):
    torch.manual_seed(0)
    model, inputs = {"resnet": resnet, "gpt2": gpt2}[network](layers)
    return model.double().eval(), inputs


def blocks(network, layers):
    return (layers - 2) // 2 if network == "resnet" else 2 * layers


def one_pass(network, layers):
    """All coefficients at once; the sum of them is what the network puts out."""
    found = dissect(*case(network, layers))
    plan = frozen_plan(found, found.node(found.output))
    return lambda: expand_signal(plan, PathOrders()).sum(0)


def passes(network, layers):
    """p + 1 forward passes."""
    model, inputs = case(network, layers)

    def run():
        with torch.no_grad():
            for _ in range(blocks(network, layers) + 1):
                found = model(**inputs).logits if isinstance(inputs, dict) else model(inputs)
        return found

    return run


def floor(network, layers):
    """Block k has k + 1 coefficients, so half of p + 1 passes: multiplications of a convolution or of a GPT-2 layer."""
    each = 2.36e6 * IMAGES * (layers - 2) if network == "resnet" else 7.1e6 * TOKENS * layers
    return Floor((blocks(network, layers) + 2) / 2 * 2 * each, dtype="float64")


def numbers(output):
    return output.detach()


def _row(network, work, sizes, quick):
    mine = {
        "module": "path_spectrum",
        "arguments": {"network": network},
        "keep": "numbers",
        "warm": {"layers": quick[0]},
    }
    return Row(
        f"paths-{network}",
        work,
        Way(function="one_pass", **mine),
        sizes,
        quick,
        {"p + 1 forward passes": Way(function="passes", **mine)},
        "layers",
        lambda layers: floor(network, layers),
        targets=(Target("≥ 2 ×", "p + 1 forward passes", least=2),),
        tolerance=1e-12,
    )


ROWS = [
    _row("resnet", "path spectrum of a pre-activation ResNet-110, all orders", (20, 56, 110), (8, 14)),
    _row("gpt2", "path spectrum of GPT-2 with 12 layers, all orders", (3, 6, 12), (1, 2)),
]

if __name__ == "__main__":
    from run import run_script

    run_script(__file__)
