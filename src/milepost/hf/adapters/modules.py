"""The parts of a model that an adapter trains, by name."""

from collections.abc import Sequence

from torch import Tensor, nn

from milepost.errors import unknown

ENCODING = "model.encoding"
"""The name of all that was added."""


def is_in(path: str, module: str) -> bool:
    """Whether a path is a module's or of a module in it."""
    return f"{path}.".startswith(f"{module}.")


def modules_named(model: nn.Module, argument: str, name: str) -> list[str]:
    """The paths of the modules that a caller names by their path or its end."""
    paths = [path for path, _ in model.named_modules() if f".{path}".endswith(f".{name}")]
    if not name or not paths:
        known = {path.rpartition(".")[2] for path, _ in model.named_modules()}
        raise unknown(
            f"module in {argument}", name, {leaf for leaf in known if leaf.isidentifier()}
        )
    return paths


def shares(model: nn.Module, name: str) -> bool:
    """Whether the weights of a module are those of one outside it, too."""
    module = model.get_submodule(name)
    own, inside = set(module.parameters()), set(module.modules())
    others = (other for other in model.modules() if other not in inside)
    return any(own & set(other.parameters(recurse=False)) for other in others)


def weights_of(model: nn.Module, modules: Sequence[str]) -> dict[str, Tensor]:
    """The tensors of some of a model's modules, by their names in the model."""
    return {
        f"{module}.{name}": tensor
        for module in modules
        for name, tensor in model.get_submodule(module).state_dict().items()
    }
