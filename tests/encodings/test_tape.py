"""TAPE against loops over its equations, its symmetries, and RoPE, from which it starts."""

import math
from unittest.mock import patch

import pytest
import torch
from torch.nn import functional as F

from milepost.cache import Cache
from milepost.encoding import Host, Positions, build
from milepost.encodings.tape import Tape
from milepost.errors import UsageError
from milepost.model import Config, Decoder

PAPER, RELEASED = {"variant": "paper"}, {"variant": "released"}
VARIANTS = pytest.mark.parametrize("options", [PAPER, RELEASED], ids=["paper", "released"])
MLP_ONLY, ATTENTION_ONLY = {"update": "mlp"}, {"update": "attention"}
NOT_EQUIVARIANT, VECTOR = {"equivariant": False}, {"form": "vector"}
EQUIVARIANT = [
    PAPER,
    RELEASED,
    PAPER | MLP_ONLY,
    RELEASED | MLP_ONLY,
    PAPER | ATTENTION_ONLY,
    RELEASED | ATTENTION_ONLY,
    PAPER | VECTOR,
    PAPER | VECTOR | MLP_ONLY,
]
OTHERS = [
    PAPER | NOT_EQUIVARIANT,
    PAPER | NOT_EQUIVARIANT | MLP_ONLY,
    RELEASED | NOT_EQUIVARIANT,
    RELEASED | NOT_EQUIVARIANT | MLP_ONLY,
]


def every(cases):
    return pytest.mark.parametrize(
        "options", cases, ids=lambda options: "-".join(map(str, options.values()))
    )


ALL = every(EQUIVARIANT + OTHERS)
TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5], [2, 7, 1, 8, 2, 8, 1, 8, 2]])


def perturb(module):
    """Move every parameter away from its start, the zeros too."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return module


def decoder(options=None, *, encoding="tape", layers=3, key_heads=2, **settings):
    torch.manual_seed(0)
    config = Config(
        vocab_size=11,
        dim=32,
        layers=layers,
        heads=4,
        key_heads=key_heads,
        max_length=64,
        encoding=encoding,
        encoding_options=options or {},
        **settings,
    )
    return Decoder(config).double()


def moving(options, **settings):
    """A decoder whose positions move."""
    model = decoder(options, **settings)
    perturb(model.encodings)
    return model


def apply(encoding, query, key, value, state, hidden):
    """One layer of `encoding`, on its own: the heads' output and the next state."""
    operands = encoding.encode(query, key, value, x=hidden, positions=None, state=state)
    attended = encoding.op(query=operands.query, **operands.memory)
    out, state = encoding.read(attended, operands=operands, state=state)
    return out, encoding.carry(state, hidden)


def watch(model, *, change=lambda state: state, place=lambda positions: positions):
    """Logits, and the positions that arrive at the last layer.

    `change` acts on the first state, `place` on where the tokens stand.
    """
    first, last = model.encodings[0], model.encodings[-1]
    begin, encode = first.begin, last.encode
    arrived = []

    def changed(x, positions):
        x, state = begin(x, place(positions))
        return x, change(state)

    def watched(*operands, state, **rest):
        arrived.append(state)
        return encode(*operands, state=state, **rest)

    with patch.object(first, "begin", changed), patch.object(last, "encode", watched):
        return model(TOKENS), arrived[0]


def orthogonal(reflect, shape):
    """Random elements of O(2), (2, 2, *shape); reflections where `reflect` is -1."""
    angle = torch.rand(shape, dtype=torch.float64) * 2 * math.pi
    cos, sin = angle.cos(), angle.sin()
    return torch.stack((torch.stack((cos, sin)), torch.stack((-sin * reflect, cos * reflect))))


def operands_of(host, batch, length):
    G, D = host.key_heads, host.head_dim

    def draw(*shape):
        return torch.randn(batch, *shape, dtype=torch.float64)

    return {
        "query": draw(host.heads, length, D),
        "key": draw(G, length, D),
        "value": draw(G, length, D),
        "hidden": draw(length, host.dim),
    }


def weights(logits):
    """The softmax of a list of numbers, in plain Python."""
    exponentials = [math.exp(x - max(logits)) for x in logits]
    return [x / sum(exponentials) for x in exponentials]


@pytest.mark.parametrize("key_heads", [1, 2, 4])
@pytest.mark.parametrize("update", ["both", "mlp"])
def test_paper_variant_is_equations_6_to_8(key_heads, update):
    torch.manual_seed(0)
    host = Host(dim=10, layers=2, heads=4, key_heads=key_heads, head_dim=6, max_length=8)
    encoding = perturb(Tape(host, hidden=5, update=update).double())
    tensors = operands_of(host, batch=2, length=4)
    state = torch.randn(2, key_heads, 4, 2, 2, 3, dtype=torch.float64)
    out, after = apply(encoding, **tensors, state=state)

    layer = encoding.after_attention
    A, W1, W2 = layer.gate, layer.up, layer.down
    group = 4 // key_heads
    for b in range(2):
        for g in range(key_heads):
            e = [[state[b, g, n, :, :, f] for f in range(3)] for n in range(4)]
            key, value = tensors["key"][b, g], tensors["value"][b, g]
            for i in range(4):
                heads, tildes = [], []
                for h in range(g * group, (g + 1) * group):
                    query = tensors["query"][b, h, i]
                    logits = [
                        sum(
                            (query[[f, f + 3]] @ e[i][f] @ e[j][f].T @ key[j, [f, f + 3]]).item()
                            for f in range(3)
                        )
                        / math.sqrt(6)
                        for j in range(i + 1)
                    ]
                    a = weights(logits)
                    heads.append(sum(a[j] * value[j] for j in range(i + 1)))
                    tildes.append(
                        [sum(a[j] * e[j][f] for j in range(i + 1)) for f in range(3)]
                        if update == "both"
                        else e[i]
                    )
                    torch.testing.assert_close(out[b, h, i], heads[-1], rtol=0, atol=1e-12)
                psi = F.silu(A[g] @ (sum(heads) / group))
                for f in range(3):
                    tilde = sum(tilde[f] for tilde in tildes) / group
                    expected = e[i][f] + W2[g] @ torch.diag(psi) @ W1[g] @ tilde
                    got = after[b, g, i, :, :, f]
                    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("key_heads", [2, 4])
@pytest.mark.parametrize("update", ["both", "attention", "mlp"])
def test_released_variant_is_one_complex_number_per_frequency(key_heads, update):
    torch.manual_seed(0)
    host = Host(dim=10, layers=2, heads=4, key_heads=key_heads, head_dim=6, max_length=8)
    encoding = perturb(Tape(host, variant="released", hidden=5, update=update).double())
    tensors = operands_of(host, batch=2, length=4)
    state = torch.randn(2, key_heads, 4, 1, 2, 3, dtype=torch.float64)
    out, after = apply(encoding, **tensors, state=state)

    z = torch.complex(state[:, :, :, 0, 0], state[:, :, :, 0, 1])
    query, key = (torch.complex(*tensors[name].chunk(2, dim=-1)) for name in ("query", "key"))
    expected = z.clone()
    group = 4 // key_heads
    for b in range(2):
        for h in range(4):
            g = h // group
            for i in range(4):
                a = weights(
                    [
                        ((query[b, h, i] * z[b, g, i]) * (key[b, g, j] * z[b, g, j]).conj())
                        .sum()
                        .real.item()
                        / math.sqrt(6)
                        for j in range(i + 1)
                    ]
                )
                head = sum(a[j] * tensors["value"][b, g, j] for j in range(i + 1))
                torch.testing.assert_close(out[b, h, i], head, rtol=0, atol=1e-12)
                if update != "mlp":
                    rate = encoding.after_attention.rate.flatten()[g]
                    p = sum(a[j] * z[b, g, j] for j in range(i + 1))
                    expected[b, g, i] += rate * p / group
    if update != "attention":
        mlp, before = encoding.after_mlp, expected.clone()
        for b in range(2):
            for i in range(4):
                gates = F.silu(mlp.gate @ tensors["hidden"][b, i])
                for g in range(key_heads):
                    for width in range(5):
                        inner = sum(mlp.up[width, o] * before[b, o, i] for o in range(key_heads))
                        expected[b, g, i] += mlp.down[g, width] * gates[width] * inner
    got = torch.complex(after[:, :, :, 0, 0], after[:, :, :, 0, 1])
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


@ALL
@pytest.mark.parametrize("key_heads", [2, 4])
def test_fresh_model_is_rope(options, key_heads):
    rope = decoder(encoding="rope", key_heads=key_heads)
    logits = decoder(options, key_heads=key_heads)(TOKENS)
    torch.testing.assert_close(logits, rope(TOKENS), rtol=0, atol=1e-12)


@ALL
def test_updates_reach_the_logits(options):
    fresh, moved = decoder(options), moving(options)
    assert (fresh(TOKENS) - moved(TOKENS)).abs().max() > 1e-3


@every(EQUIVARIANT)
def test_orthogonal_change_of_positions_leaves_logits_and_passes_through(options):
    model = moving(options)
    if options["variant"] == "paper":  # any R per head and frequency, reflections included
        reflect = torch.tensor([[1, -1, 1, -1], [-1, -1, 1, 1]])
        R = orthogonal(reflect, (2, 4))
    else:  # heads mix, and only rotations
        R = orthogonal(1, (1, 4)).expand(2, 2, 2, 4)
    logits, positions = watch(model)
    changed, turned = watch(model, change=lambda e: torch.einsum("bgsldf,dcgf->bgslcf", e, R))
    torch.testing.assert_close(changed, logits, rtol=0, atol=1e-10)
    expected = torch.einsum("bgsldf,dcgf->bgslcf", positions, R)
    torch.testing.assert_close(turned, expected, rtol=0, atol=1e-10)
    assert (turned - positions).abs().max() > 0.1


@VARIANTS
def test_other_changes_of_positions_change_the_logits(options):
    model = moving(options)
    logits, _ = watch(model)
    longer, _ = watch(model, change=lambda e: 1.5 * e)
    assert (longer - logits).abs().max() > 1e-3


def test_released_variant_has_no_reflections():
    mirror = torch.tensor([1.0, -1.0], dtype=torch.float64)[:, None]
    for options, holds in ((PAPER, True), (RELEASED, False)):
        model = moving(options)
        logits, _ = watch(model)
        mirrored, _ = watch(model, change=lambda e: e * mirror)
        assert ((mirrored - logits).abs().max() < 1e-10) == holds


@every(EQUIVARIANT)
def test_shift_of_all_positions_changes_nothing(options):
    model = moving(options)
    logits, _ = watch(model)
    shifted, _ = watch(model, place=lambda p: p.renumbered(p.index + 1000))
    torch.testing.assert_close(shifted, logits, rtol=0, atol=1e-10)
    stretched, _ = watch(model, place=lambda p: p.renumbered(p.index * 2))
    assert (stretched - logits).abs().max() > 1e-4


@every(OTHERS)
def test_a_shift_changes_the_logits_where_the_right_index_is_mixed(options):
    """And only by what was learned: fresh, it is RoPE."""
    for model, moves in ((decoder(options), False), (moving(options), True)):
        logits, _ = watch(model)
        shifted, _ = watch(model, place=lambda p: p.renumbered(p.index + 1000))
        assert ((shifted - logits).abs().max() > 1e-4) == moves
        assert moves or (shifted - logits).abs().max() < 1e-10


@pytest.mark.parametrize("key_heads", [2, 4])
@pytest.mark.parametrize("ablation", [NOT_EQUIVARIANT, VECTOR], ids=["not equivariant", "vector"])
def test_ablations_of_equation_8_act_on_the_four_numbers_of_a_position(key_heads, ablation):
    """vec(e) ← vec(e) + W₂ diag(ψ) W₁ vec(ẽ): by 4 × 4 matrices, or by the number of L = 1."""
    torch.manual_seed(0)
    host = Host(dim=10, layers=2, heads=4, key_heads=key_heads, head_dim=6, max_length=8)
    encoding = perturb(Tape(host, hidden=5, **ablation).double())
    tensors = operands_of(host, batch=2, length=4)
    state = torch.randn(2, key_heads, 4, 2, 2, 3, dtype=torch.float64)
    with patch.object(encoding, "after_attention", None):
        out, before = apply(encoding, **tensors, state=state)  # value ‖ ẽ, of each head
    torch.testing.assert_close(before, state)
    _, after = apply(encoding, **tensors, state=state)
    mean = out.unflatten(1, (key_heads, -1)).mean(2)
    layer = encoding.after_attention
    for b in range(2):
        for g in range(key_heads):
            for i in range(4):
                psi = F.silu(layer.gate[g] @ mean[b, g, i, :6])
                matrix = layer.down[g] @ torch.diag(psi) @ layer.up[g]
                assert matrix.shape == ((4, 4) if ablation == NOT_EQUIVARIANT else (1, 1))
                tilde = mean[b, g, i, 6:].view(2, 2, 3)
                for f in range(3):
                    vector = tilde[:, :, f].reshape(4)
                    moved = matrix @ vector if len(matrix) == 4 else matrix.item() * vector
                    expected = state[b, g, i, :, :, f] + moved.view(2, 2)
                    torch.testing.assert_close(
                        after[b, g, i, :, :, f], expected, rtol=0, atol=1e-12
                    )


def test_attention_alone_adds_a_multiple_of_what_was_gathered():
    torch.manual_seed(0)
    host = Host(dim=10, layers=2, heads=4, key_heads=2, head_dim=6, max_length=8)
    encoding = perturb(Tape(host, update="attention").double())
    tensors = operands_of(host, batch=2, length=4)
    state = torch.randn(2, 2, 4, 2, 2, 3, dtype=torch.float64)
    with patch.object(encoding, "after_attention", None):
        out, _ = apply(encoding, **tensors, state=state)
    _, after = apply(encoding, **tensors, state=state)
    gathered = out.unflatten(1, (2, -1)).mean(2)[..., 6:].view_as(state)
    rate = encoding.after_attention.rate
    assert rate.numel() == 2
    torch.testing.assert_close(after, state + rate * gathered, rtol=0, atol=1e-12)


@pytest.mark.parametrize("key_heads", [2, 4])
def test_the_released_ablation_has_maps_for_real_and_imaginary_part(key_heads):
    torch.manual_seed(0)
    host = Host(dim=10, layers=2, heads=4, key_heads=key_heads, head_dim=6, max_length=8)
    options = RELEASED | NOT_EQUIVARIANT | MLP_ONLY
    encoding = perturb(Tape(host, hidden=5, **options).double())
    state = torch.randn(2, key_heads, 4, 1, 2, 3, dtype=torch.float64)
    hidden = torch.randn(2, 4, 10, dtype=torch.float64)
    after, mlp = encoding.carry(state, hidden), encoding.after_mlp
    for part in range(2):
        for b in range(2):
            for i in range(4):
                gates = torch.diag(F.silu(mlp.gate @ hidden[b, i]))
                mixing = mlp.down[part] @ gates @ mlp.up[part]
                before = state[b, :, i, 0, part]
                expected = before + mixing @ before
                torch.testing.assert_close(after[b, :, i, 0, part], expected, rtol=0, atol=1e-12)


@VARIANTS
def test_order_of_earlier_tokens_matters_through_their_positions_alone(options):
    torch.manual_seed(0)
    host = Host(dim=10, layers=2, heads=4, key_heads=2, head_dim=6, max_length=8)
    encoding = perturb(Tape(host, **options).double())
    tensors = operands_of(host, batch=2, length=7)
    hidden = tensors.pop("hidden")
    rows = 2 if options["variant"] == "paper" else 1
    state = torch.randn(2, 2, 7, rows, 2, 3, dtype=torch.float64)
    operands = encoding.encode(**tensors, x=hidden, positions=None, state=state)

    def last(order):
        memory = {name: tensor[:, :, order] for name, tensor in operands.memory.items()}
        attended = encoding.op(query=operands.query[:, :, -1:], **memory)
        out, after = encoding.read(attended, operands=operands, state=state[:, :, -1:])
        return out, encoding.carry(after, hidden[:, -1:])

    for here, there in zip(last([0, 1, 2, 3, 4, 5, 6]), last([4, 0, 5, 2, 1, 3, 6]), strict=True):
        torch.testing.assert_close(here, there, rtol=0, atol=1e-12)


@ALL
def test_every_parameter_has_a_gradient(options):
    model = moving(options)
    model(TOKENS).square().sum().backward()
    parameters = dict(model.encodings.named_parameters())
    assert parameters
    for name, parameter in parameters.items():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


@ALL
def test_gradients_through_positions_are_whole(options):
    torch.manual_seed(0)
    host = Host(dim=3, layers=2, heads=2, key_heads=1, head_dim=4, max_length=8)
    encoding = perturb(Tape(host, hidden=2, **options).double())
    tensors = operands_of(host, batch=1, length=3)
    rows = 2 if options["variant"] == "paper" else 1
    state = torch.randn(1, 1, 3, rows, 2, 2, dtype=torch.float64)
    inputs = [tensor.requires_grad_() for tensor in (*tensors.values(), state)]

    def layer(query, key, value, hidden, state):
        return apply(encoding, query, key, value, state, hidden)

    assert torch.autograd.gradcheck(layer, inputs)


@pytest.mark.parametrize(
    ("options", "zeros"),
    [(PAPER, {"after_attention.down"}), (RELEASED, {"after_attention.rate", "after_mlp.up"})],
)
def test_fresh_model_learns_from_its_zeros(options, zeros):
    model = decoder(options)
    model(TOKENS).square().sum().backward()
    first = dict(model.encodings[0].named_parameters())
    assert {name for name, p in first.items() if p.abs().max() == 0} == zeros
    assert {name for name, p in first.items() if p.grad.abs().max() > 0} == zeros


@ALL
def test_last_layer_updates_nothing(options):
    stack = build("tape", Host(32, 3, 4, 2, 8, 64), options)
    assert all(list(layer.parameters()) for layer in stack[:-1])
    assert not list(stack[-1].parameters())
    assert decoder(options, layers=1)(TOKENS).isfinite().all()


@pytest.mark.parametrize(
    ("options", "width"),
    [(PAPER, 24), (RELEASED, 16), (PAPER | MLP_ONLY, 8), (RELEASED | MLP_ONLY, 8)],
)
def test_positions_stand_beside_the_values_where_they_are_aggregated(options, width):
    model, cache = decoder(options), Cache()
    model(TOKENS, cache=cache)
    widths = [cache.layers[layer].memory["value"].shape[-1] for layer in range(3)]
    assert widths == [width, width, 8]
    assert set(cache.layers[0].memory) == set(Tape.cached)


@ALL
def test_cached_decoding_is_the_full_forward(options):
    model, cache = moving(options), Cache()
    chunks = [model(TOKENS[:, a:b], cache=cache) for a, b in ((0, 4), (4, 6), (6, 7), (7, 9))]
    torch.testing.assert_close(torch.cat(chunks, dim=1), model(TOKENS), rtol=0, atol=1e-12)


@VARIANTS
def test_padding_and_packed_documents_stand_alone(options):
    model = moving(options)
    padded = model(TOKENS, padding=torch.tensor([0, 3]))
    torch.testing.assert_close(padded[1:, 3:], model(TOKENS[1:, 3:]), rtol=0, atol=1e-12)
    packed = model(TOKENS, documents=torch.tensor([[0] * 4 + [1] * 5, [0] * 9]))
    torch.testing.assert_close(packed[:1, 4:], model(TOKENS[:1, 4:]), rtol=0, atol=1e-12)


@VARIANTS
def test_state_is_precise_in_a_bfloat16_model(options):
    host = Host(32, 3, 4, 2, 8, 64)
    encoding = Tape(host, **options)
    positions = Positions(torch.tensor([1000, 1001]), first=0, length=2)
    x = torch.zeros(1, 2, 32)
    _, exact = encoding.begin(x.double(), positions)
    _, state = encoding.begin(x.bfloat16(), positions)
    torch.testing.assert_close(state.double(), exact, rtol=0, atol=1e-6)

    model = moving(options).bfloat16()
    logits, arrived = watch(model)
    assert arrived.dtype == torch.float32
    assert logits.dtype == torch.bfloat16


@ALL
def test_state_is_precise_under_autocast(options):
    model = moving(options).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits, arrived = watch(model)
    assert arrived.dtype == torch.float32
    assert (logits - model(TOKENS)).abs().max() < 0.1 * model(TOKENS).abs().max()


@VARIANTS
def test_random_shift_moves_positions_in_training_alone(options):
    model = moving(options | {"random_shift": True})
    logits, still = watch(model.eval())
    assert torch.equal(watch(model)[1], still)
    shifted, moved = watch(model.train())
    torch.testing.assert_close(shifted, logits, rtol=0, atol=1e-10)
    assert (moved - still).abs().max() > 1e-3
    cache = Cache()
    model(TOKENS, cache=cache)
    with pytest.raises(UsageError, match=r"random_shift.*\.eval\(\)"):
        model(TOKENS, cache=cache)


def test_parameters_at_the_papers_size():
    """B′ = 48, 12 heads of 64, 12 layers of which 11 update; the paper's Table 7 says 0.44 M."""

    def count(options):
        stack = build("tape", Host(768, 12, 12, 12, 64, 1024), options)
        return sum(p.numel() for layer in stack for p in layer.parameters())

    assert count(PAPER) == 11 * 12 * 48 * (64 + 2 + 2) == 430_848
    assert count(RELEASED) == 11 * (48 * (768 + 12 + 12) + 12) == 418_308
    assert count(PAPER | NOT_EQUIVARIANT) == 11 * 12 * 48 * (64 + 4 + 4) == 456_192
    assert count(PAPER | VECTOR) == 11 * 12 * 48 * (64 + 1 + 1) == 418_176
    assert count(PAPER | ATTENTION_ONLY) == count(RELEASED | ATTENTION_ONLY) == 11 * 12
    assert count(RELEASED | NOT_EQUIVARIANT) == 11 * (48 * (768 + 24 + 24) + 12) == 430_980


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variant": "papers"}, "unknown variant 'papers'.*paper, released"),
        ({"update": "none"}, "unknown update 'none'.*attention, both, mlp"),
        ({"form": "matrix"}, "unknown form 'matrix'.*tensor, vector"),
        (ATTENTION_ONLY | VECTOR, "form='vector' changes Eq. 8, which update='attention'"),
        (ATTENTION_ONLY | NOT_EQUIVARIANT, "equivariant=False changes Eq. 8, which update"),
        (RELEASED | VECTOR, "form='vector' needs positions that are tensors.*variant='paper'"),
        (NOT_EQUIVARIANT | VECTOR, "equivariant=False mixes all.*choose one of the two"),
        ({"factor": 2.0}, "factor only with initial='yarn', got initial='rope'"),
        ({"initial": "yarn", "factor": 0.5}, "factor must be at least 1, got 0.5"),
        ({"hidden": 0}, "hidden must be a whole number above 0, got 0"),
        ({"base": -1.0}, "base must be above 0"),
    ],
)
def test_mistakes_are_named(options, message):
    with pytest.raises(UsageError, match=message):
        build("tape", Host(32, 3, 4, 2, 8, 64), options)


def test_from_the_identity_it_starts_as_no_encoding():
    fresh, none = decoder({"initial": "identity"}), decoder(encoding="none")
    none.load_state_dict({k: v for k, v in fresh.state_dict().items() if "encodings" not in k})
    torch.testing.assert_close(fresh(TOKENS), none(TOKENS), rtol=0, atol=1e-12)
    moved = perturb(fresh.encodings)
    assert moved is fresh.encodings
    assert (fresh(TOKENS) - none(TOKENS)).abs().max() > 1e-3


def test_it_starts_from_the_hosts_own_rotations_unless_a_base_is_given():
    own = build("rope", Host(32, 2, 4, 2, 8, 64), {"base": 77.0})[0]
    host = Host(32, 2, 4, 2, 8, 64, rope=lambda: own)
    x, at = torch.randn(1, 5, 32), Positions(torch.arange(5), 0, 5)
    _, expected = own.begin(x, at)
    for name in ("tape", "cope+rope", "fox+rope", "stick-breaking+rope", "rope", "shifted-sparse"):
        _, state = build(name, host)[0].begin(x, at)
        cos = state[0, 0, :, 0, 0] if name == "tape" else state[0][0, 0]
        assert torch.equal(cos, expected[0][0, 0]), name
        _, other = build(name, host, {"base": 1e4})[0].begin(x, at)
        cos = other[0, 0, :, 0, 0] if name == "tape" else other[0][0, 0]
        assert not torch.equal(cos, expected[0][0, 0]), name


@VARIANTS
@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_from_yarn_it_starts_as_yarn(options, factor):
    """And with factor 1 it is TAPE itself, also when positions have moved."""
    stretched = {"factor": factor, "original_length": 4}
    yarn = decoder(stretched, encoding="yarn")
    fresh = decoder(options | stretched | {"initial": "yarn"})
    torch.testing.assert_close(fresh(TOKENS), yarn(TOKENS), rtol=0, atol=1e-12)
    plain, moved = moving(options), moving(options | stretched | {"initial": "yarn"})
    moved.load_state_dict(plain.state_dict())
    assert torch.equal(moved(TOKENS), plain(TOKENS)) == (factor == 1)
    assert (moved(TOKENS) - yarn(TOKENS)).abs().max() > 1e-3


def test_yarn_in_a_model_that_came_with_rotations_needs_its_base():
    host = Host(32, 2, 4, 2, 8, 64, rope=lambda: build("rope", host)[0])
    with pytest.raises(UsageError, match=r"initial='yarn' turns by angles.*give base"):
        build("tape", host, {"initial": "yarn"})
    stack = build("tape", host, {"initial": "yarn", "base": 500.0})
    assert stack[0].rope.base == 500


def test_an_unknown_start_is_named():
    with pytest.raises(UsageError, match="unknown initial 'ropes': did you mean 'rope'"):
        decoder({"initial": "ropes"})
