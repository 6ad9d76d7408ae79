"""The controls of the paths view."""

from skiplens.explorer.control import Choice, Slider

THEORY, NETWORK = "theory", "network"
RATIO, SCALE = "ratio", "scale"

_IN_THEORY = ("look_at", (THEORY,))
_IN_NETWORK = ("look_at", (NETWORK,))

MODELS = (
    ("digits_resnet", "digits_resnet: 8 blocks, batch norm"),
    ("ensemble_resnet", "ensemble_resnet: 9 fully connected blocks"),
    ("preact_resnet", "preact_resnet: 18 blocks for CIFAR"),
    ("preact_resnet18", "preact_resnet18: 8 blocks, 11 million weights"),
    ("tangent_resnet", "tangent_resnet: 10 blocks of two matrices"),
    ("mnist_residual", "mnist_residual: 2 convolutional blocks"),
)
"""Networks of the zoo that have at least two shortcuts, and what they are."""

CONTROLS = (
    Choice(
        "look_at",
        "Look at",
        help="The closed form of the paper, or the spectrum measured in a real network beside it.",
        options=((THEORY, "Theory"), (NETWORK, "A real network")),
        default=THEORY,
    ),
    Slider(
        "depth",
        "Depth p",
        help="Layers of the network: one, then p − 1 residual blocks. A path takes or skips each block.",
        low=2,
        high=1000,
        default=100,
        whole=True,
        logarithmic=True,
        only_when=_IN_THEORY,
    ),
    Choice(
        "given",
        "Branch strength from",
        help="Set β itself, or the weights that make it: β = ρ n C / √n.",
        options=((RATIO, "β"), (SCALE, "C, width, ρ")),
        default=RATIO,
        only_when=_IN_THEORY,
    ),
    Slider(
        "beta",
        "Depth ratio β",
        help="How strong a branch is beside its shortcut. Small: short paths win. Large: long paths win.",
        low=0.001,
        high=100,
        default=0.5,
        logarithmic=True,
        only_when=("given", (RATIO,)),
    ),
    Slider(
        "scale",
        "Weight scale C",
        help="Root mean square of the weights of a branch.",
        low=0.001,
        high=10,
        default=0.125,
        logarithmic=True,
        only_when=("given", (SCALE,)),
    ),
    Slider(
        "width",
        "Width n",
        help="Units of every layer: the more, the more paths add up.",
        low=1,
        high=4096,
        default=64,
        whole=True,
        logarithmic=True,
        only_when=("given", (SCALE,)),
    ),
    Slider(
        "gate",
        "Open gates ρ",
        help="How often a ReLU lets the signal through; one half for random weights.",
        low=0.01,
        high=1,
        default=0.5,
        step=0.01,
        only_when=("given", (SCALE,)),
    ),
    Choice(
        "model",
        "Network",
        help="A network of the zoo with random weights, on embedded images.",
        options=MODELS,
        default="digits_resnet",
        only_when=_IN_NETWORK,
    ),
    Slider(
        "factor",
        "Branches times",
        help="Multiplies every branch of the network; in the theory β grows by the same factor.",
        low=0.02,
        high=50,
        default=1,
        logarithmic=True,
        only_when=_IN_NETWORK,
    ),
    Slider(
        "seed",
        "Seed",
        help="Which random weights the network has.",
        low=0,
        high=99,
        default=0,
        whole=True,
        only_when=_IN_NETWORK,
    ),
)
