"""The learning rate, a pure function of the step.

With w steps of warmup and n steps in all, step s = 0, 1, ..., n - 1 trains at lr · f(s):

    f(s) = (s + 1) / w                 for s < w
    f(s) = 1                           constant
    f(s) = 1 - u                       linear    u = (s - w) / (n - w)
    f(s) = (1 + cos(π u)) / 2          cosine

The last two would reach 0 at s = n, the first step that is not taken. The warmup starts above 0,
so that the first step is not lost.
"""

import math

from milepost.training.settings import Settings


def learning_rate(settings: Settings, step: int) -> float:
    """The learning rate of the step that is the `step`-th from 0."""
    if step < settings.warmup:
        return settings.lr * (step + 1) / settings.warmup
    if settings.schedule == "constant":
        return settings.lr
    done = (step - settings.warmup) / (settings.steps - settings.warmup)
    if settings.schedule == "linear":
        return settings.lr * (1 - done)
    return settings.lr * (1 + math.cos(math.pi * done)) / 2
