"""The compiled kernels as a whole: which run on this machine, and what is said without them."""

import re
import subprocess
import sys
import textwrap

import pytest
import torch

from milepost import ops
from milepost.errors import UsageError
from milepost.ops import dispatch, native

from ..cases import Case, cast, operands

compiled = pytest.mark.skipif(native.isa() is None, reason=str(native.missing()))

BROKEN = """
    import sys

    class Broken:
        def find_spec(self, name, path, target=None):
            if name == "milepost.ops.native._kernels":
                raise {error}

    sys.meta_path.insert(0, Broken())
"""
RUN_OPS = """
    import warnings
    import torch
    from milepost import ops
    from milepost.ops import native

    def run(function=ops.softmax_attention, backend="auto"):
        return function(*torch.ones(3, 1, 1, 4, 8), backend=backend)

    def said(*arguments):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run(*arguments)
        return [str(warning.message) for warning in caught]
"""


def python(*parts: str) -> str:
    """What a Python of its own prints, which must succeed."""
    source = "".join(textwrap.dedent(part) for part in parts)
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@compiled
def test_the_fastest_is_in_use_and_the_baseline_is_there_everywhere():
    assert native.isa() == native.isas()[0]
    assert native.isas()[-1] == "baseline"
    assert native.missing() is None


@compiled
def test_another_can_be_used_for_a_while():
    fastest = native.isa()
    with native.use("baseline"):
        assert native.isa() == "baseline"
        with native.use(fastest):
            assert native.isa() == fastest
        assert native.isa() == "baseline"
    assert native.isa() == fastest


@compiled
def test_an_error_within_does_not_keep_it():
    fastest = native.isa()
    with pytest.raises(ZeroDivisionError), native.use("baseline"):
        raise ZeroDivisionError
    assert native.isa() == fastest


@compiled
@pytest.mark.parametrize("name", ["base-line", "avx1024", "", None])
def test_one_that_does_not_run_here_is_told_those_that_do(name):
    message = r"^unknown instruction set of this machine .*valid: (.*, )?baseline"
    with pytest.raises(UsageError, match=message), native.use(name):
        pass


@compiled
@pytest.mark.parametrize("name", native.isas())
def test_every_one_runs(name):
    given = cast(operands(Case()), torch.float32)
    with native.use(name):
        found = ops.softmax_attention(**given, backend="native")
    expected = ops.softmax_attention(**given, backend="reference")
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ('ModuleNotFoundError("No module named it")', "were not compiled for this Python .*it"),
        ('ImportError("undefined symbol")', "do not load: undefined symbol"),
        ('OSError("wrong ELF class")', "do not load: wrong ELF class"),
    ],
    ids=["missing", "broken", "of another machine"],
)
def test_without_the_extension_there_is_a_reason_and_one_warning(error, reason):
    found = python(
        BROKEN.format(error=error),
        RUN_OPS,
        """
        from milepost.errors import UsageError

        assert native.isa() is None
        assert native.isas() == ()
        print(native.missing())
        assert said(ops.softmax_attention, "reference") == []
        first, = said()
        assert native.missing() in first
        print(first)
        assert said() == []
        try:
            with native.use("baseline"):
                pass
        except UsageError as error:
            assert native.missing() in str(error)
        else:
            raise AssertionError
        """,
    )
    missing, said = found.splitlines()
    assert re.search(reason, missing)
    assert said.startswith("milepost runs its slower path on CPUs: ")
    assert "Install a C++17 compiler" in said


def test_a_compiled_op_does_not_warn_and_stays_whole():
    found = python(
        BROKEN.format(error='ImportError("it")'),
        RUN_OPS,
        """
        compiled = torch.compile(ops.softmax_attention, fullgraph=True, backend="eager")
        print([message for message in said(compiled) if "slower path" in message])
        """,
    )
    assert found == "[]\n"


def test_the_warning_points_at_the_caller_of_the_op():
    found = python(
        BROKEN.format(error='ImportError("it")'),
        RUN_OPS,
        """
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run()
        print(caught[0].filename, caught[0].lineno)
        """,
    )
    assert found.split()[0] == "<string>"


@compiled
def test_with_the_extension_nothing_is_said():
    assert python(RUN_OPS, "print(said())") == "[]\n"


def test_the_extension_is_no_kernel_of_an_op():
    assert "_kernels" not in dispatch.modules("native")
    assert "kernels" not in dispatch.modules("native")


@pytest.mark.skipif(
    not hasattr(native._kernels, "overrun"), reason="only `make sanitize` builds with sanitizers"
)
def test_the_sanitizer_sees_a_write_past_the_end():
    source = "from milepost.ops.native import _kernels; _kernels.overrun(4)"
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode != 0
    assert "AddressSanitizer: heap-buffer-overflow" in done.stderr
