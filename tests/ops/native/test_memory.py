"""Memory grows with the length of a sequence, not with its square."""

import json
import subprocess
import sys
import textwrap

import pytest

from milepost.ops import native

pytestmark = [
    pytest.mark.skipif(native.isa() is None, reason=str(native.missing())),
    pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of its memory in /proc"),
    pytest.mark.skipif(hasattr(native._kernels, "overrun"), reason="the sanitizer's own grows"),
]

# A process of its own for each length, forked from one that has everything loaded
MEASURE = """
    import json
    import os
    import sys
    import torch
    from milepost import ops

    torch.set_num_threads(1)

    def kilobytes(name):
        line, = (line for line in open("/proc/self/status") if line.startswith(name))
        return int(line.split()[1])

    def train(name, T):
        query, key, value = (torch.randn(1, 1, T, 16, requires_grad=True) for _ in range(3))
        given = {"query": query, "key": key, "value": value, "backend": "native"}
        if name == "cope_attention":
            given["table"] = torch.randn(64, 16, requires_grad=True)
            given["gate_keys"] = 1e-3 * torch.randn(1, 1, T, 16)  # gates of 1/2
            given["relative_table"] = torch.randn(64, 16)
        if name == "cope_alibi_attention":
            given["slopes"] = torch.full((1,), -0.1, requires_grad=True)
        if name == "bias_attention":
            given["bias"] = torch.randn(1, T, requires_grad=True)
        if name == "relative_attention":
            given["table"] = torch.randn(32, 16, requires_grad=True)
        if name == "forgetting_attention":
            given["log_f"] = torch.zeros(1, 1, T, requires_grad=True)
        out = getattr(ops, name)(**given)
        out = out[0] if isinstance(out, tuple) else out
        out.sum().backward()

    found = {}
    for name in sys.argv[1:]:
        train(name, 130)
        for T in (2048, 8192):
            here, there = os.pipe()
            child = os.fork()
            if not child:
                before = kilobytes("VmRSS")
                train(name, T)
                os.write(there, str(kilobytes("VmHWM") - before).encode())
                os._exit(0)
            os.waitpid(child, 0)
            found.setdefault(name, []).append(int(os.read(here, 100)))
    print(json.dumps(found))
"""
OPS = ("softmax", "bias", "relative", "cope", "cope_alibi", "forgetting", "stick_breaking")


def test_four_times_the_length_takes_four_times_the_memory():
    names = [f"{name}_attention" for name in OPS]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MEASURE), *names],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for name, (short, long) in json.loads(done.stdout).items():
        assert 0 < long < 5 * short, (name, short, long)
