"""Models, weights, data and losses from the words that name them, such as `zoo:NAME` or `path/file.py:function`."""

import ast
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from skiplens import data, zoo
from skiplens.base.arguments import with_article
from skiplens.base.errors import InvalidInputError, ModelSpecError, did_you_mean, refuse_if
from skiplens.base.files import is_file, is_folder, user_path
from skiplens.base.import_by_name import call_by_name, import_by_name
from skiplens.cli import console, hubs
from skiplens.cli.flags import DataSettings, ModelSettings
from skiplens.data.files import FILES, SavedDataset, load_file, read_checkpoint, read_safetensors
from skiplens.graph.inputs import first_line
from skiplens.graph.loss import NAMED
from skiplens.readings.finding import listed


def model_for(settings: ModelSettings) -> nn.Module:
    """The model that the settings ask for, with its weights, in the mode that was asked for."""
    refuse_if(settings.eval and settings.train, "--eval and --train were both given; a model is in one mode.")
    model = build_model(settings.model, settings.seed, settings.set, settings.pretrained)
    if settings.weights is not None:
        load_weights(model, settings.weights)
    return model.train(settings.train) if settings.eval or settings.train else model


def build_model(spec: str, seed: int = 0, options: tuple[str, ...] = (), pretrained: bool = False) -> nn.Module:
    """The model that `spec` names.

    `zoo:NAME` takes options after commas, as in ``zoo:tangent_resnet,depth=10,branch_scale=0.3``, and `seed` for its
    weights. A function of a file or a package is called with the options alone and must return an `nn.Module`.
    """
    if ":" not in spec:
        raise ModelSpecError(
            f"{spec!r} does not name a model. Write zoo:NAME (skiplens zoo lists them), path/file.py:function, "
            "package.module:function, hf:NAME, timm:NAME or torchvision:NAME."
        )
    named = _options(options)
    if spec.partition(":")[0] in hubs.HUBS:
        return hubs.build_from_hub(spec, named, pretrained, seed)
    refuse_if(pretrained, f"--pretrained is for hf:, timm: and torchvision:; {spec!r} takes --weights FILE.")
    if spec.startswith("zoo:"):
        name, *given = spec.removeprefix("zoo:").split(",")
        return zoo.build_from_text(",".join([name, f"seed={seed}", *given, *options]))
    model = import_by_name(spec)
    model = model if isinstance(model, nn.Module) and not named else call_by_name(spec, **named)
    if not isinstance(model, nn.Module):
        raise ModelSpecError(
            f"{spec!r} returned {with_article(type(model).__name__)}, not a torch.nn.Module. Return the model itself."
        )
    return model


def _options(words: tuple[str, ...]) -> dict[str, Any]:
    """The options that `--set` names: numbers, truth values, None and lists as Python writes them, else words."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        refuse_if(not equals or not name.isidentifier(), f"--set has {word!r}; write name=value, such as depth=50.")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found


def data_for(spec: str, settings: DataSettings, model: nn.Module | None = None) -> Any:
    """The data that was named; the images of a data set are brought to the form that a network of the zoo takes.

    Of a saved data set the columns are taken that `model` has as arguments.
    """
    named, length = settings.data, hubs.places(model)
    if settings.tokenizer is not None:
        console.err().print(f"data: samples of at most {length} tokens, so longer texts are cut", markup=False)
    if named.startswith("hf:"):
        taken = _arguments_of(model)
        return SavedDataset(named.removeprefix("hf:"), tokenizer=settings.tokenizer, taken=taken, length=length)
    if named.endswith(FILES) or settings.tokenizer is not None or is_file(user_path(named)):
        return load_file(named, tokenizer=settings.tokenizer, length=length)
    if ":" in named and not named.endswith((":train", ":test")):
        return call_by_name(named)
    shape: tuple[int, ...] | None = None
    if spec.partition(":")[0] in hubs.HUBS:
        model = build_model(spec) if model is None else model
        shape = hubs.image_shape(model)
        if shape is None and named == "sample":
            console.err().print("data: random tokens without targets, since no data was named", markup=False)
            return hubs.random_tokens(model, 0)
    side = min(shape[1:]) if shape is not None and is_folder(user_path(named)) else None
    with console.progress_shown() as progress:
        images = data.load(named, data.LoadOptions(image_size=settings.image_size or side), progress=progress)
    if spec.startswith("zoo:"):
        name, options = zoo.parse(",".join([spec.removeprefix("zoo:"), *getattr(settings, "set", ())]))
        options.pop("seed", None)
        shape = zoo.entry(name).settings(options).input_shape()
    fitted = images if shape is None else data.fit_to(images, shape)
    digits = "the sample digits, 1 × 28 × 28, since --data names no other" * (shape is None and named == "sample")
    told = digits or getattr(fitted, "description", images.name)
    if told != images.name:
        console.err().print(f"data: {told}", markup=False)
    return fitted


def _arguments_of(model: nn.Module | None) -> tuple[str, ...] | None:
    """The names that the model's forward pass takes; None where it takes any."""
    if model is None:
        return None
    parameters = inspect.signature(model.forward).parameters.values()
    explicit = tuple(parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD)
    return explicit or None


def loss_named(words: str | None) -> Any:
    """The loss for `inspect` and `compare`: a name that they know, or the function (or torch module) that is named."""
    if words is None or words in NAMED:
        return words
    if ":" not in words:
        raise InvalidInputError(
            f"There is no loss {words!r}. {did_you_mean(words, NAMED)} A loss of your own is named "
            "path/file.py:function or package.module:function; it is called with outputs and targets."
        )
    loss = import_by_name(words)
    is_module = isinstance(loss, type) and issubclass(loss, nn.Module)  # such as torch.nn:HuberLoss
    return call_by_name(words) if is_module else loss


def load_weights(model: nn.Module, path: Path | str) -> nn.Module:
    """`model` with the weights of `path`; every name and shape must fit."""
    path = Path(path)
    refuse_if(not is_file(path), f"There is no file of weights {path}.")
    state = read_safetensors(path) if path.suffix == ".safetensors" else _state_of(read_checkpoint(path), path)
    for wrapper in ("module.", "_orig_mod.", f"{next(iter(state), '').partition('.')[0]}."):  # the last: of a trainer
        bare = {name.removeprefix(wrapper): value for name, value in state.items()}
        if all(name.startswith(wrapper) for name in state) and not state.keys() & model.state_dict().keys():
            state = bare
    _require_fit(model, state, path)
    try:
        model.load_state_dict(state)
    except Exception as error:  # tensors of a kind that cannot be copied, such as sparse ones
        raise InvalidInputError(f"The weights of {path} cannot be loaded: {first_line(error)}") from error
    return model


def _state_of(content: Any, path: Path) -> dict[str, Tensor]:
    if isinstance(content, Mapping):
        for wrapper in ("state_dict", "model_state_dict", "model"):  # where training scripts keep the weights
            if isinstance(content.get(wrapper), Mapping):
                content = content[wrapper]
                break
        if content and all(isinstance(value, Tensor) for value in content.values()):
            return {str(name): value for name, value in content.items()}
    raise InvalidInputError(
        f"{path} does not hold a mapping from names to tensors. Save it with torch.save(model.state_dict(), FILE)."
    )


def _require_fit(model: nn.Module, state: Mapping[str, Tensor], path: Path) -> None:
    wanted = model.state_dict()
    shapes = {
        f"{name} has shape {tuple(state[name].shape)} instead of {tuple(wanted[name].shape)}"
        for name in wanted.keys() & state.keys()
        if state[name].shape != wanted[name].shape
    }
    wrong = {"missing: ": wanted.keys() - state.keys(), "unknown: ": state.keys() - wanted.keys(), "": shapes}
    if problems := [f"{word}{listed(tuple(sorted(names)), 3)}" for word, names in wrong.items() if names]:
        raise InvalidInputError(f"The weights of {path} do not fit {type(model).__name__}: {'; '.join(problems)}.")
