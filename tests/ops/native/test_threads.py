"""`parallel` of the extension: every item once, on the threads that PyTorch has already."""

import subprocess
import sys
import textwrap

import pytest

from milepost.ops import native

pytestmark = pytest.mark.skipif(native.isa() is None, reason=str(native.missing()))

START = """
    import os
    import threading
    import torch
    from milepost.ops import native

    def threads():
        return set(os.listdir("/proc/self/task"))

    def torch_work():
        a = torch.ones(512, 512)
        for _ in range(3):
            a = torch.softmax(a @ a, -1)

    def probe(items=32, **options):
        ran = native._kernels.probe(2, items, **options)
        assert 0 not in ran
        return len(set(ran))

    torch.set_num_threads(2)
"""
linux = pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")


def python(source: str) -> None:
    """Run it in a Python whose threads are its own."""
    source = textwrap.dedent(START) + textwrap.dedent(source)
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("threads", [-1, 0, 1, 2, 5])
@pytest.mark.parametrize("items", [0, 1, 2, 7])
def test_every_item_is_run(threads, items):
    ran = native._kernels.probe(threads, items)
    assert len(ran) == items
    assert 0 not in ran
    assert len(set(ran)) <= min(max(threads, 1), items)


@linux
def test_the_threads_are_those_of_pytorch():
    python("""
        torch_work()
        before = threads()
        assert probe() == 2
        assert threads() == before
        torch_work()
        assert threads() == before
    """)


@linux
def test_pytorch_takes_the_threads_of_the_kernels():
    python("""
        torch.ones(1)
        assert probe() == 2
        before = threads()
        torch.softmax(torch.ones(2048, 2048), -1)
        assert threads() == before
    """)


@linux
def test_inside_a_team_the_threads_are_no_more():
    python("""
        torch_work()
        before = threads()
        assert probe(inner=8) == 2
        assert threads() == before
    """)


@linux
def test_several_threads_may_call_at_once():
    python("""
        found = []

        def call():
            torch_work()
            ready.wait()
            here.wait()
            found.append(probe())
            after.wait()
            done.wait()

        ready, here, after, done = (threading.Barrier(3) for _ in range(4))
        callers = [threading.Thread(target=call) for _ in range(2)]
        for caller in callers:
            caller.start()
        ready.wait()
        before = threads()
        here.wait()
        after.wait()
        assert threads() == before
        done.wait()
        for caller in callers:
            caller.join()
        assert found == [2, 2]
    """)


@linux
def test_without_pytorch_the_threads_are_new_ones():
    """Loaded alone, the extension finds no OpenMP; nothing of it is left afterwards."""
    source = f"""
        import os
        import sys
        from importlib.util import module_from_spec, spec_from_file_location

        spec = spec_from_file_location("_kernels", {native._kernels.__file__!r})
        kernels = module_from_spec(spec)
        spec.loader.exec_module(kernels)
        ran = kernels.probe(2, 32)
        assert len(set(ran)) == 2, ran
        assert len(os.listdir("/proc/self/task")) == 1
        assert "torch" not in sys.modules
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
