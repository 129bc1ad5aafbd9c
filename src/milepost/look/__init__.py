"""What a model's attention does with a text: as arrays, as numbers, and as a page to look at.

    trace(model, tokens).layers[0].gates        (H, S, S)
    write([of_task("cope", model, task, tokens)], Path("page.html"))

`milepost.look.layer` has the equations, `milepost.look.shown` what is shown of each encoding,
`milepost.look.counted` what a head counts, `milepost.look.tokens` what the tokens of a task are.
"""

from milepost.look.counted import Counted, counted, ranked
from milepost.look.layer import Layer
from milepost.look.page import page, write
from milepost.look.shown import Shown, shown
from milepost.look.subject import Subject, of_task, of_text
from milepost.look.tokens import at_length, encode, has_length, read, sample, token_classes
from milepost.look.trace import Trace, trace

__all__ = [
    "Counted",
    "Layer",
    "Shown",
    "Subject",
    "Trace",
    "at_length",
    "counted",
    "encode",
    "has_length",
    "of_task",
    "of_text",
    "page",
    "ranked",
    "read",
    "sample",
    "shown",
    "token_classes",
    "trace",
    "write",
]
