"""The specification: every op written out over the whole matrix of pairs, in plain PyTorch.

Any floating dtype and device, differentiable by autograd, exact to rounding in fp64; sums are
made in fp32 at least. Memory and time grow with S · T. Faster backends are tested against this.
"""
