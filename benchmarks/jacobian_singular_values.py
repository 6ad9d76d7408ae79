"""How much faster are all singular values of a batch-coupled block than a dense Jacobian and its SVD?

The MNIST networks of 'On skip connections and normalisation layers' have batch norm in training mode, so a block is one
map of all images: with 32 of them the Jacobian of the first block is 23,040 × 23,040, 4 GiB in float64, of which an SVD
needs two or three copies. The dense way, `torch.func.jacrev` and `torch.linalg.svdvals`, is run with 4 images and
extrapolated by the cube of their number, which is what an SVD takes (the Jacobian alone grows by the square).
"""

import torch
from rows import Floor, Row, Target
from ways import Way

import skiplens as sl
from skiplens import data, zoo
from skiplens.graph.dissect import dissect
from skiplens.graph.functional import transformable
from skiplens.graph.network import part_function

BLOCK, SIDE = "block1", 720


def case(images):
    torch.manual_seed(0)
    return zoo.build("mnist_residual").double(), data.load("sample").first(images).inputs.double()


def low_rank(images):
    model, inputs = case(images)

    def values():
        found = sl.jacobian_spectrum(
            model, inputs, blocks=[BLOCK], coupling="batch", method="exact", network=False, parts=("block",)
        )
        return found.singular_values[BLOCK]

    return values


def dense(images):
    model, inputs = case(images)
    network = dissect(model, inputs)
    block = network.block(BLOCK)
    function, point = part_function(network, block), network.run([block.input])[block.input].detach()

    def values():
        with transformable():
            jacobian = torch.func.jacrev(function, chunk_size=64)(point)
        return torch.linalg.svdvals(jacobian.detach().reshape(jacobian.shape[: point.ndim].numel(), -1))

    return values


def floor(images):
    """The bidiagonalisation of each image's own Jacobian, 8/3 n³."""
    return Floor(images * 8 / 3 * SIDE**3, dtype="float64")


ROWS = [
    Row(
        "jacobian",
        "singular values of a batch-coupled block, float64",
        Way("jacobian_singular_values", "low_rank", repeats=1),
        (4, 8, 32),
        (2,),
        {"torch.func.jacrev and svdvals": Way("jacobian_singular_values", "dense", repeats=1, size=4, grows=3)},
        "images",
        floor,
        targets=(Target("≥ 5 ×", "torch.func.jacrev and svdvals", least=5),),
        tolerance=1e-10,
    )
]

if __name__ == "__main__":
    from run import run_script

    run_script(__file__)
