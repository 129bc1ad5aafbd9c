"""Kernels that may not be shipped, for the processes that compile them."""

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def product(a, b, out, K, M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr):
    """out (M, N) = a (M, K) · b (K, N)."""
    rows = tl.arange(0, M)[:, None]
    columns = tl.arange(0, N)[None, :]
    acc = tl.zeros((M, N), tl.float32)
    for k in tl.range(0, K, STEP):
        along = k + tl.arange(0, STEP)
        left = tl.load(a + rows * K + along[None, :])
        right = tl.load(b + along[:, None] * N + columns)
        acc = tl.dot(left, right, acc)
    tl.store(out + rows * N + columns, acc)


@triton.jit
def wrong(out):
    tl.store(out, tl.zeros((3,), tl.float32))


@dataclass(frozen=True)
class Product:
    """A product with so many warps and stages."""

    M: int
    N: int
    STEP: int
    warps: int
    stages: int
    label: str = "product"

    def written(self) -> dict[str, Any]:
        return {"op": "product", "dtype": "float16", "head_dim": self.STEP, "variant": "plain"}

    def launch(self) -> None:
        a, b = (torch.empty(size, 512, dtype=torch.float16, device="meta") for size in (16, 16))
        product[(1,)](
            a,
            b,
            torch.empty(1, device="meta"),
            512,
            M=self.M,
            N=self.N,
            STEP=self.STEP,
            num_warps=self.warps,
            num_stages=self.stages,
            enable_fp_fusion=True,
        )


@dataclass(frozen=True)
class Wrong:
    """A kernel that does not compile."""

    label: str = "wrong"

    def written(self) -> dict[str, Any]:
        return {"op": "wrong", "dtype": "float16", "head_dim": 3, "variant": "plain"}

    def launch(self) -> None:
        wrong[(1,)](torch.empty(1, device="meta"), enable_fp_fusion=True)
