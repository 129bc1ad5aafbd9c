"""`milepost encodings`: every position encoding, and what each changes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Arguments:
    """List the position encodings, what each changes, and which backends compute it."""


def run(arguments: Arguments) -> int:
    """Print the list."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from milepost.encoding import describe, names

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("encoding", no_wrap=True)
    table.add_column("what it changes")
    table.add_column("parameters", justify="right", no_wrap=True)
    table.add_column("caches")
    table.add_column("fused")
    for name in names():
        facts = describe(name)
        fused = [backend for backend in facts["backends"] if backend != "reference"]
        changes = Text(facts["changes"])
        changes.append(f"\n{facts['paper']}", style="dim")
        table.add_row(
            Text(name, style="bold"),
            changes,
            f"{facts['parameters']:,}",
            Text(", ".join(facts["cached"])),
            Text(", ".join(fused) or "–"),
        )
    console = Console()
    console.print(table)
    console.print(
        "parameters: on a model of 12 layers and 12 heads of 64. caches: what each token leaves "
        "for later ones. fused: backends beside plain PyTorch (reference)."
    )
    return 0
