"""What a compiled kernel takes of its GPU: registers, memory, and which instructions it has.

Of NVIDIA's GPUs the tools that come with Triton tell; of AMD's it stands in the assembly.

    registers     of a thread, in 32 bits; for AMD the vector registers, those for matrices included
    stack         bytes of a thread's memory beyond them: arrays that no register can hold
    spills        instructions that read or write it (NVIDIA); registers that were spilled (AMD)
    shared        bytes of a block's shared memory
    code          bytes of machine code
    instructions  how many of each kind stand in the code, not how many are run
"""

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

INSTRUCTION_BYTES = 16  # since Volta

# Beginnings of mnemonics, each to be counted under one name. NVIDIA's; AMD's
KINDS: dict[str, tuple[str, ...]] = {
    "HGMMA": ("HGMMA",),
    "HMMA": ("HMMA",),
    "UTCMMA": ("UTCHMMA", "UTCQMMA", "UTCIMMA", "UTCOMMA"),
    "FFMA": ("FFMA",),
    "FADD": ("FADD",),
    "FMUL": ("FMUL",),
    "MUFU": ("MUFU",),
    "LDG": ("LDG",),
    "LDGSTS": ("LDGSTS",),
    "LDS": ("LDS", "LDSM"),
    "STS": ("STS", "STSM"),
    "SHFL": ("SHFL",),
    "BAR": ("BAR",),
    "IMAD": ("IMAD",),
}
PACKED = {"FFMA2": "FFMA", "FADD2": "FADD", "FMUL2": "FMUL"}  # two at once, since Blackwell
NAMES = {word: kind for kind, words in KINDS.items() for word in words} | PACKED
AMD_KINDS: dict[str, str] = {
    "v_mfma": "MFMA",
    "v_fma_f32": "FMA",
    "v_fmac_f32": "FMA",
    "v_pk_fma_f32": "FMA",
    "v_add_f32": "ADD",
    "v_sub_f32": "ADD",
    "v_pk_add_f32": "ADD",
    "v_mul_f32": "MUL",
    "v_pk_mul_f32": "MUL",
    "v_exp_f32": "TRANS",
    "v_log_f32": "TRANS",
    "v_rcp_f32": "TRANS",
    "buffer_load": "LOAD",
    "global_load": "LOAD",
    "ds_read": "DS_READ",
    "ds_bpermute": "PERMUTE",
    "ds_swizzle": "PERMUTE",
    "ds_write": "DS_WRITE",
    "s_barrier": "BARRIER",
    "scratch_": "SCRATCH",
}

SASS = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)", re.MULTILINE)
ASSEMBLY = re.compile(r"^\s+([a-z]+_\w+)", re.MULTILINE)
USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)")


def of(compiled: Any, *, instructions: bool) -> dict[str, Any]:
    """The resources of a kernel as Triton compiled it.

    Args:
        compiled: what `JITFunction.run` returns.
        instructions: whether to count them too, which takes as long as a small kernel's
            compilation; else `spills`, `code` and `instructions` of NVIDIA's are None. A kernel
            without a stack has no spills.
    """
    if "cubin" in compiled.asm:
        found = nvidia(compiled.asm["cubin"], instructions=instructions)
    else:
        found = amd(compiled.asm["amdgcn"], instructions=instructions)
    found["shared"] = int(compiled.metadata.shared)
    if getattr(compiled.metadata, "tmem_size", 0):
        found["tensor_memory"] = int(compiled.metadata.tmem_size)
    return found


def nvidia(cubin: bytes, *, instructions: bool) -> dict[str, Any]:
    """Of a binary for NVIDIA's GPUs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        usage = USAGE.search(_said("-res-usage", path))
        assert usage is not None, "cuobjdump does not say what a kernel uses"
        registers, stack, local = map(int, usage.groups())
        found: dict[str, Any] = {"registers": registers, "stack": stack + local}
        if not instructions:
            return found | {"spills": None, "code": None, "instructions": None}
        words = SASS.findall(_said("-sass", path))
    count = Counter(words)
    return found | {
        "spills": count["STL"] + count["LDL"],
        "code": INSTRUCTION_BYTES * len(words),
        "instructions": _by_kind(NAMES.get(word) for word in words),
    }


def amd(assembly: str, *, instructions: bool = True) -> dict[str, Any]:
    """Of assembly for AMD's GPUs."""

    def noted(name: str) -> int:
        found = re.search(rf"^\s*(?:- )?\.{name}:\s*(\d+)", assembly, re.MULTILINE)
        assert found is not None, f"the assembly does not say its {name}"
        return int(found[1])

    def kind(word: str) -> str | None:
        beginnings = (name for beginning, name in AMD_KINDS.items() if word.startswith(beginning))
        return next(beginnings, None)

    code = re.search(r"codeLenInByte = (\d+)", assembly)
    words = ASSEMBLY.findall(assembly)
    return {
        "registers": noted("vgpr_count"),
        "matrix_registers": noted("agpr_count"),
        "stack": noted("private_segment_fixed_size"),
        "spills": noted("vgpr_spill_count"),
        "code": None if code is None else int(code[1]),
        "instructions": _by_kind(kind(word) for word in words) if instructions else None,
    }


def _by_kind(kinds: Iterable[str | None]) -> dict[str, int]:
    """How many of each kind, most first."""
    return dict(Counter(kind for kind in kinds if kind is not None).most_common())


def tool(name: str) -> Path:
    """A program that comes with Triton."""
    import triton

    return Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name


def _said(option: str, path: Path) -> str:
    command = [str(tool("cuobjdump")), option, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def assembler(architecture: int) -> str:
    """The version of the program that makes the machine code of an NVIDIA GPU, 90 for sm_90."""
    name = "ptxas-blackwell" if architecture >= 100 else "ptxas"
    path = tool(name) if tool(name).exists() else tool("ptxas")
    said = subprocess.run([str(path), "--version"], capture_output=True, text=True, check=True)
    version = re.search(r"V(\d+\.\d+\.\d+)", said.stdout)
    return "unknown" if version is None else version[1]
