"""Reads a page as a browser would, by the rules of `milepost.look.pack` and with nothing of it."""

import base64
import json
import math
import zlib
from html.parser import HTMLParser
from typing import Any

import pytest
import torch


class Parsed(HTMLParser):
    """What a browser finds in a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.policy = ""
        self.within = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.texts.append("")
        self.within = True
        if dict(attrs).get("http-equiv") == "Content-Security-Policy":
            self.policy = dict(attrs)["content"] or ""

    def handle_endtag(self, tag: str) -> None:
        self.within = False

    def handle_data(self, data: str) -> None:
        if self.within:
            self.texts[-1] += data

    def of(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        """The elements of a kind, and the text in each."""
        together = zip(self.elements, self.texts, strict=True)
        return [(given, text) for (name, given), text in together if name == tag]

    @property
    def subjects(self) -> list[dict[str, Any]]:
        (text,) = [text for given, text in self.of("script") if given.get("id") == "subjects"]
        return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))

    @property
    def blocks(self) -> dict[str | None, str]:
        plain = [each for each in self.of("script") if each[0].get("type") == "text/plain"]
        found = {given["id"]: text for given, text in plain}
        assert len(found) == len(plain)
        return found


def unpacked(text: str, code: str, levels: int = 255) -> torch.Tensor:
    """The array (S, S) in fp64: of "counted" the gates, of which `counts` makes the sums."""
    read = [byte / levels for byte in zlib.decompress(base64.b64decode(text, validate=True))]
    rule = {
        "linear": lambda share: share,
        "counted": lambda share: share,
        "cosine": lambda share: 2 * share - 1,
        "square": lambda share: share**2,
    }[code]
    size = math.isqrt(2 * len(read))
    assert len(read) == size * (size + 1) // 2
    found = torch.zeros(size, size, dtype=torch.float64)
    rows, columns = torch.tril_indices(size, size)
    found[rows, columns] = torch.tensor([rule(share) for share in read], dtype=torch.float64)
    return found


def counts(gates: torch.Tensor) -> torch.Tensor:
    """The sum of the gates from each key to the query."""
    found = torch.zeros_like(gates)
    for i in range(len(gates)):
        total = 0.0
        for j in range(i, -1, -1):
            total += gates[i, j].item()
            found[i, j] = total
    return found


def precision(array: torch.Tensor, code: str, levels: int = 255) -> torch.Tensor:
    """How far a number may be from what is read.

    A byte is within half a level of what it stands for, of gates within one. Of a weight a it is
    the root, so that (√a ± 1/2L)² is at most √a/L + 1/4L² away.
    """
    if code == "square":
        return array.sqrt() / levels + 1 / (4 * levels**2) + 1e-9
    allowed = {"linear": 1 / 510, "cosine": 1 / 255, "counted": 1 / 255}[code]
    return torch.full_like(array, allowed + 1e-9)
