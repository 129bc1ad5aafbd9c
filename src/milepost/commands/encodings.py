"""`milepost encodings`: every position encoding, and what each changes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Arguments:
    """List the position encodings, what each changes, and which backends compute it."""


def run(arguments: Arguments) -> int:
    """Print the list."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from milepost.encoding import describe, names

    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for name in names():
        facts = describe(name)
        fused = [backend for backend in facts["backends"] if backend != "reference"]
        told = [facts["paper"], f"{facts['parameters']:,} parameters"]
        told += [f"caches {', '.join(more)} too"] if (more := facts["cached"][2:]) else []
        told += [f"fused: {', '.join(fused) or 'none'}"] if len(fused) < 2 else []
        table.add_row(
            Text(name, style="bold"),
            Text(facts["changes"]).append(f"\n{'; '.join(told)}", style="dim"),
        )
    console = Console(highlight=False)
    console.print(table)
    console.print(
        "\nParameters: on a model of 12 layers and 12 heads of 64. Every encoding caches the key "
        "and value of each token. Unless it says otherwise, there are fused kernels (triton, "
        "native) beside plain PyTorch."
    )
    return 0
