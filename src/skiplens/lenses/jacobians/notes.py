"""What a person should know before reading a Jacobian spectrum."""

from collections.abc import Iterator, Mapping

from skiplens.derivatives.jacobian import Effort, Spectrum, coupling_norms
from skiplens.derivatives.polynomial.plan import sources_of
from skiplens.residual import ResidualNetwork


def notes_of(network: ResidualNetwork, effort: Effort, spectra: Mapping[str, Spectrum]) -> tuple[str, ...]:
    """Sentences about what was done differently from the plain case."""
    return tuple(_notes(network, effort, spectra))


def _notes(network: ResidualNetwork, effort: Effort, spectra: Mapping[str, Spectrum]) -> Iterator[str]:
    sources = sources_of(network, network.node(network.output))
    samples = network.node(sources[0].name).meta["val"].shape[0]
    if not network.blocks:
        yield "The model has no residual join, so only the whole network was measured."
    if sources[0].op != "placeholder":
        yield f"The inputs are integers; the network's Jacobian starts at their embedding ({sources[0].name})."
    if len(sources) > 1:
        yield f"The network has {len(sources)} inputs; its Jacobian is by the first of them ({sources[0].name})."
    if effort.coupling == "sample" and coupling_norms(network, sources[0].name, network.output, samples):
        yield (
            "Batch norm is in training mode; its statistics were frozen, so that each sample has its own Jacobian. "
            "Each channel of a batch norm can shift the sorted singular values of the whole batch by two places."
        )
    estimated = [name for name, spectrum in spectra.items() if spectrum.method == "lanczos"]
    if estimated:
        yield (
            f"Densities of {', '.join(estimated)} come from up to {effort.steps} Lanczos steps with {effort.probes} "
            "random vector(s): the largest singular value is exact, sharp peaks (at 0 and 1) are smeared out."
        )
