"""How much faster are all singular values of a batch-coupled block than a dense Jacobian and its SVD?

    python benchmarks/jacobian_singular_values.py [--images 4 8 32] [--dense-up-to 8] [--block block1] [--device cuda]

The MNIST networks of 'On skip connections and normalisation layers' have batch norm in training mode, so a block is one
map of all images: with 32 of them the Jacobian of the first block is 23,040 × 23,040. The dense way is
`torch.func.jacrev` and `torch.linalg.svdvals`. Values are compared wherever both ran; where the dense way was left out
its time is extrapolated from the largest that ran (Jacobian by the square, SVD by the cube of the size), and marked so.
The last line is JSON.
"""

import argparse
import json
import resource
import time

import torch
from infinite_width_gram import environment, show

import skiplens as sl
from skiplens import data
from skiplens.derivatives.functional import transformable
from skiplens.residual import dissect, part_function, zoo


def clocked(work, device):
    """What `work` returns, and its CPU seconds (on a GPU: seconds)."""
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    start = clock()
    result = work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return result, clock() - start


def dense(network, block):
    """The singular values by torch.func and an SVD, with the seconds of both."""
    function, point = part_function(network, block), network.run([block.input])[block.input].detach()
    with transformable():
        jacobian, forming = clocked(lambda: torch.func.jacrev(function, chunk_size=64)(point), point.device)
    matrix = jacobian.detach().reshape(jacobian.shape[: point.ndim].numel(), -1)
    values, decomposing = clocked(lambda: torch.linalg.svdvals(matrix), point.device)
    return values.cpu(), forming, decomposing


def measured(images, options):
    device = torch.device(options.device)
    model = zoo.build(options.network).to(device)
    inputs = data.load("sample").first(images).inputs.to(device, torch.get_default_dtype())
    network = dissect(model, inputs)
    block = network.block(options.block)
    spectrum, ours = clocked(
        lambda: sl.jacobian_spectrum(model, inputs, [options.block], "batch", "exact", network=False, parts=("block",)),
        device,
    )
    values = spectrum.singular_values[options.block]
    row = {"images": images, "values": len(values), "method": spectrum.methods[0], "ours_s": ours}
    row["peak_GiB"] = (
        torch.cuda.max_memory_allocated()
        if device.type == "cuda"
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    ) / 2**30
    if images <= options.dense_up_to:
        expected, row["jacobian_s"], row["svd_s"] = dense(network, block)
        row["deviation"] = float((values - expected).abs().max() / expected[0])
    return row


def with_extrapolation(rows):
    """The dense times of the rows without them, from the last row that has them."""
    known = [row for row in rows if "svd_s" in row]
    for row in rows:
        if "svd_s" not in row and known:
            ratio = row["values"] / known[-1]["values"]
            row["jacobian_s"], row["svd_s"] = known[-1]["jacobian_s"] * ratio**2, known[-1]["svd_s"] * ratio**3
            row["extrapolated"] = True
        if "svd_s" in row:
            row["ratio"] = (row["jacobian_s"] + row["svd_s"]) / row["ours_s"]
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, nargs="+", default=[2, 4, 8, 32])
    parser.add_argument("--dense-up-to", type=int, default=4)
    parser.add_argument("--network", default="mnist_residual")
    parser.add_argument("--block", default="block1")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_default_dtype(torch.float64)
    rows = with_extrapolation([measured(images, options) for images in options.images])
    show([{"extrapolated": False, "deviation": float("nan")} | row for row in rows])
    print(json.dumps({"environment": environment(), "options": vars(options), "rows": rows}))


if __name__ == "__main__":
    main()
