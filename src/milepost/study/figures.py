"""A table as a paper prints it, for kinds of studies that show it whole beside their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Figures:
    """A table of the paper: its rows by name, a value for each column."""

    title: str
    source: str
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[float, ...]]
