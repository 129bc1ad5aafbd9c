"""Milepost where Triton is not installed: all of it but the kernels for GPUs."""

import subprocess
import sys
import textwrap

import pytest

BLOCKED = {
    "no module": """
        import sys

        sys.modules["triton"] = None
    """,
    "no module found": """
        import sys

        class Blocked:
            def find_spec(self, name, path, target=None):
                if name.partition(".")[0] == "triton":
                    raise ModuleNotFoundError("No module named 'triton'", name=name)

        sys.meta_path.insert(0, Blocked())
    """,
}
SETUP = """
    import milepost
    import torch
    from milepost import ops
    from milepost.errors import UsageError
    from milepost.ops import dispatch, triton

    # What each takes beside query, key and value, of 1 batch, 2 heads, 4 tokens and 8 numbers
    EXTRA = {
        "softmax": (),
        "bias": (torch.zeros(2, 3),),
        "relative": (torch.ones(3, 8),),
        "cope": (torch.ones(3, 8),),
        "cope_alibi": (-torch.ones(2),),
        "cope_bias": (torch.ones(3, 8), torch.zeros(2, 3)),
        "cope_mlp": (torch.ones(5), torch.ones(5), torch.ones(5, 8)),
        "forgetting": (-torch.ones(1, 2, 4),),
        "hard": (),
        "stick_breaking": (),
    }
    assert {f"{name}_attention" for name in EXTRA} == set(ops.__all__)

    def run(name, backend, *given):
        return getattr(ops, f"{name}_attention")(*given, *EXTRA[name], backend=backend)

    def refusal(name, *given):
        try:
            run(name, "triton", *given)
        except UsageError as error:
            return str(error)
"""


@pytest.fixture(params=BLOCKED.values(), ids=BLOCKED)
def python(request, monkeypatch):
    """Runs source in a Python of its own, in which `import triton` fails."""

    def run(source: str) -> None:
        parts = (request.param, SETUP, source)
        done = subprocess.run(
            [sys.executable, "-c", "".join(map(textwrap.dedent, parts))],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    return run


def test_every_op_runs_on_cpus(python):
    python("""
        for name in EXTRA:
            given = torch.randn(3, 1, 2, 4, 8, requires_grad=True).unbind()
            for backend in ("auto", "reference"):
                found = run(name, backend, *given)
                out = found[0] if name == "stick_breaking" else found
                assert out.shape == (1, 2, 4, 8)
                out.sum().backward(retain_graph=True)
    """)


@pytest.mark.parametrize("interpret", [False, True])
def test_triton_refuses_tensors_of_the_cpu(python, interpret, monkeypatch):
    if interpret:
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    python("""
        for name in EXTRA:
            said = refusal(name, *torch.randn(3, 1, 2, 4, 8))
            assert said.startswith("triton refused: needs cuda tensors, got cpu"), said
    """)


def test_triton_says_what_is_missing_where_the_tensors_are_on_a_gpu(python):
    """Tensors without data: they need no GPU."""
    python("""
        from torch._subclasses import FakeTensorMode

        assert "triton" in triton.missing().lower()
        with FakeTensorMode():
            EXTRA = {
                name: tuple(torch.empty(x.shape, device="cuda") for x in extra)
                for name, extra in EXTRA.items()
            }
            given = torch.empty(3, 1, 2, 4, 8, device="cuda").unbind()
            for name in EXTRA:
                said = refusal(name, *given)
                if dispatch.implementation("triton", name):
                    assert said.startswith(f"triton refused: {triton.missing()}; "), said
                else:
                    assert "has no kernel" in said, said
                operands = dict(zip(("query", "key", "value"), given))
                chosen = dispatch.choose(name, "auto", operands)
                assert chosen.__module__ == f"milepost.ops.reference.{name}"
    """)
