"""Controls of random layers and blocks."""

from skiplens.explorer.control import Control, Slider, Switch

MATRIX_CONTROLS: tuple[Control, ...] = (
    Slider(
        "scale",
        "Weight scale s",
        help="How large the weights are: entries have variance s²/width. PyTorch's linear layers start at 0.577.",
        low=0.05,
        high=2.0,
        default=0.577,
        logarithmic=True,
        only_when=("topic", ("layer", "block")),
    ),
    Slider(
        "width",
        "Width",
        help="Features of the layer; the wider, the closer what is drawn comes to the smooth curves.",
        low=20,
        high=300,
        default=200,
        whole=True,
        logarithmic=True,
        only_when=("topic", ("layer", "block")),
    ),
    Slider(
        "depth",
        "Layers in a row",
        help="How many such layers a gradient has to pass on its way back.",
        low=1,
        high=100,
        default=20,
        whole=True,
        only_when=("topic", ("layer",)),
    ),
    Switch(
        "mnist",
        "Measure the MNIST networks",
        help="Also computes the singular values of a block of the paper's convolutional networks; takes some seconds.",
        default=False,
        only_when=("topic", ("block",)),
    ),
    Slider(
        "seed",
        "Seed",
        help="Names the random weights: the same seed draws the same ones.",
        low=0,
        high=99,
        default=0,
        whole=True,
        only_when=("topic", ("layer", "block")),
    ),
)
