"""What a model's attention does, as arrays: gates, positions, weights, layer by layer.

    trace(model, tokens).layers[0].gates        (H, S, S)

`milepost.look.layer` has the equations, `milepost.look.tokens` what the tokens of a task are.
"""

from milepost.look.layer import Layer
from milepost.look.tokens import at_length, has_length, read, token_classes
from milepost.look.trace import Trace, trace

__all__ = ["Layer", "Trace", "at_length", "has_length", "read", "token_classes", "trace"]
