"""Position interpolation, NTK-aware scaling and YaRN, and what all rotations have in common."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from milepost.encoding import Host, Positions
from milepost.encodings.rope import Rope
from milepost.encodings.rope_linear import RopeLinear
from milepost.encodings.rope_ntk import RopeNtk, ntk_base
from milepost.encodings.xpos import Xpos
from milepost.encodings.yarn import Yarn
from milepost.errors import UsageError

CPU = torch.device("cpu")
HOST = Host(dim=64, layers=2, heads=4, key_heads=2, head_dim=16, max_length=64)


def logits(encoding: Rope, shift: int = 0, length: int = 10) -> Tensor:
    """q·k after `encode`, of tokens that stand at shift, shift + 1 and so on."""
    generator = torch.Generator().manual_seed(0)
    query, key = (
        torch.randn(2, heads, length, 16, dtype=torch.float64, generator=generator)
        for heads in (4, 2)
    )
    positions = Positions(torch.arange(shift, shift + length), first=shift, length=length)
    x = torch.zeros(2, length, 64, dtype=torch.float64)
    _, state = encoding.begin(x, positions)
    operands = encoding.encode(query, key, key, x=x, positions=positions, state=state)
    return operands.query @ operands.memory["key"].repeat_interleave(2, dim=1).mT


@pytest.mark.parametrize(
    "encoding",
    [
        Rope(HOST),
        RopeLinear(HOST, factor=3.0),
        RopeNtk(HOST, factor=8.0),
        Yarn(HOST, factor=2.0),
        Yarn(HOST, factor=16.0, original_length=32, ramp="dimensions"),
        Xpos(HOST),
        Xpos(HOST, gamma=0.1, scale_base=64.0),
    ],
    ids=lambda encoding: type(encoding).__name__,
)
def test_logits_depend_on_the_distance_alone(encoding: Rope) -> None:
    here = logits(encoding)
    torch.testing.assert_close(logits(encoding, shift=7), here, rtol=0, atol=1e-12)
    torch.testing.assert_close(logits(encoding, shift=5000), here, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "encoding",
    [
        RopeLinear(HOST, factor=1.0),
        RopeNtk(HOST, factor=1.0),
        Yarn(HOST, factor=1.0),
        Yarn(HOST, factor=1.0, ramp="dimensions"),
    ],
    ids=lambda encoding: type(encoding).__name__,
)
def test_a_factor_of_one_is_rope(encoding: Rope) -> None:
    torch.testing.assert_close(logits(encoding), logits(Rope(HOST)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [RopeLinear, RopeNtk, Yarn, Xpos])
def test_a_rope_checkpoint_loads(kind: type[Rope]) -> None:
    kind(HOST).load_state_dict(Rope(HOST).state_dict())


def test_linear_puts_token_n_at_n_over_factor() -> None:
    every_third = logits(RopeLinear(HOST, factor=3.0), length=10)[..., ::3, ::3]
    generator = torch.Generator().manual_seed(0)
    query, key = (
        torch.randn(2, heads, 10, 16, dtype=torch.float64, generator=generator)[:, :, ::3]
        for heads in (4, 2)
    )
    rope, positions = Rope(HOST), Positions(torch.arange(4), first=0, length=4)
    x = torch.zeros(2, 4, 64, dtype=torch.float64)
    state = rope.begin(x, positions)[1]
    operands = rope.encode(query, key, key, x=x, positions=positions, state=state)
    expected = operands.query @ operands.memory["key"].repeat_interleave(2, dim=1).mT
    torch.testing.assert_close(every_third, expected, rtol=0, atol=1e-12)


def test_ntk_slows_the_slowest_pair_by_the_factor_and_the_fastest_not_at_all() -> None:
    ratio = RopeNtk(HOST, factor=8.0).frequencies(CPU) / Rope(HOST).frequencies(CPU)
    assert ratio[0] == 1
    assert ratio[-1].item() == pytest.approx(1 / 8, abs=1e-12)
    assert (ratio.diff() < 0).all()
    assert RopeNtk(HOST, factor=8.0).base == pytest.approx(10_000 * 8 ** (16 / 14))


def test_an_explicit_base_is_used_as_it_is() -> None:
    given = RopeNtk(HOST, factor=1.0, base=1e6).frequencies(CPU)
    assert torch.equal(given, Rope(HOST, base=1e6).frequencies(CPU))
    assert ntk_base(1e6, 1.0, 16) == 1e6


def yarn_in_the_paper(D: int, base: float, L: int, s: float, alpha: float, beta: float) -> Any:
    theta = []
    for d in range(D // 2):
        plain = base ** (-2 * d / D)
        wavelength = 2 * math.pi / plain
        r = L / wavelength
        if r < alpha:
            gamma = 0.0
        elif r > beta:
            gamma = 1.0
        else:
            gamma = (r - alpha) / (beta - alpha)
        theta.append((1 - gamma) * plain / s + gamma * plain)
    return torch.tensor(theta, dtype=torch.float64)


def yarn_in_code(D: int, base: float, L: int, s: float, slow: float, fast: float) -> Any:
    def correction(turns: float) -> float:
        return D * math.log(L / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = max(math.floor(correction(fast)), 0), min(math.ceil(correction(slow)), D - 1)
    theta = []
    for d in range(D // 2):
        kept = 1 - min(max((d - low) / (high - low), 0.0), 1.0)
        extrapolated, interpolated = base ** (-2 * d / D), base ** (-2 * d / D) / s
        theta.append(interpolated * (1 - kept) + extrapolated * kept)
    return torch.tensor(theta, dtype=torch.float64)


@pytest.mark.parametrize(("D", "L", "s"), [(128, 4096, 16.0), (64, 2048, 32.0), (16, 256, 4.0)])
@pytest.mark.parametrize(
    ("ramp", "reference"), [("rotations", yarn_in_the_paper), ("dimensions", yarn_in_code)]
)
def test_yarn_interpolates_by_parts(D: int, L: int, s: float, ramp: str, reference: Any) -> None:
    host = Host(D, 1, 1, 1, D, max_length=7)
    encoding = Yarn(host, factor=s, original_length=L, ramp=ramp)
    theta = encoding.frequencies(CPU)
    torch.testing.assert_close(theta, reference(D, 1e4, L, s, 1, 32), rtol=1e-12, atol=0)
    plain = Rope(host).frequencies(CPU)
    assert theta[0] == plain[0], "the fastest pair is kept"
    assert theta[-1] == plain[-1] / s, "the slowest pair is interpolated"


def test_the_codes_ramp_may_end_past_the_last_pair() -> None:
    encoding = Yarn(HOST, factor=4.0, original_length=100_000, ramp="dimensions")
    expected = yarn_in_code(16, 1e4, 100_000, 4.0, 1, 32)
    torch.testing.assert_close(encoding.frequencies(CPU), expected, rtol=1e-12, atol=0)
    assert expected[-1] > Rope(HOST).frequencies(CPU)[-1] / 4


def test_yarn_takes_max_length_for_the_length_to_reach() -> None:
    given = Yarn(HOST, original_length=16).frequencies(CPU)  # 64 tokens by a factor of 4
    assert torch.equal(Yarn(HOST).frequencies(CPU), given)


def test_yarn_sharpens_the_logits() -> None:
    softer = Yarn(HOST, factor=16.0)
    _, (cos, sin) = softer.begin(torch.zeros(1, 3, 64).double(), Positions(torch.arange(3), 0, 3))
    root = 0.1 * math.log(16) + 1
    torch.testing.assert_close(cos**2 + sin**2, torch.full_like(cos, root**2))
    assert logits(softer)[0, 0, 0, 0].item() == pytest.approx(
        root**2 * logits(Rope(HOST))[0, 0, 0, 0].item(), rel=1e-12
    )


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        (RopeLinear, {"factor": 0.5}, "factor must be at least 1, got 0.5"),
        (RopeNtk, {"factor": 0}, "factor must be at least 1, got 0"),
        (RopeNtk, {"base": -1.0}, "base must be above 0"),
        (Yarn, {"factor": float("nan")}, "factor must be at least 1, got nan"),
        (Yarn, {"beta_slow": 32.0}, "beta_slow=32.0 and beta_fast=32.0"),
        (Yarn, {"original_length": 0}, "original_length must be a whole number"),
        (Yarn, {"ramp": "rotation"}, "unknown ramp 'rotation': did you mean 'rotations'"),
    ],
)
def test_a_bad_option_is_named(kind: type[Rope], options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        kind(HOST, **options)


def test_ntk_needs_more_than_one_pair() -> None:
    with pytest.raises(UsageError, match="head_dim must be at least 4, got 2"):
        RopeNtk(Host(8, 1, 4, 4, 2, 16))
