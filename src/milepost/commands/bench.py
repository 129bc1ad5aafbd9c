"""`milepost bench`: the speed and memory of every op beside PyTorch's own attention."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class Cpu:
    """Measure on this machine's CPU: check each op first, then time it beside the others.

    Results are written after each step, so that what was measured stays when a run is stopped.
    """

    ops: Annotated[str | None, tyro.conf.arg(metavar="A,B,...")] = None
    """softmax, bias, bias_dense, relative, cope, cope_separate, cope_alibi, forgetting,
    stick_breaking; all of them if left out."""
    lengths: Annotated[str, tyro.conf.arg(metavar="N,N,...")] = "512,1024,2048,4096,8192,16384"
    """Tokens in a sequence."""
    head_dims: Annotated[str, tyro.conf.arg(metavar="N,N,...")] = "64,128"
    """Of queries, keys and values."""
    threads: Annotated[str, tyro.conf.arg(metavar="N,N,...")] = "1,all"
    """Numbers of threads; all is one for each core."""
    backend: Literal["native", "reference"] = "native"
    """What is measured: the compiled kernels, or plain PyTorch."""
    isa: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """The instruction-set variant of the native kernels; the best that runs here if left out."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of queries, keys and values."""
    rounds: int = 40
    """At most so many for each cell and direction."""
    seconds: float = 20.0
    """No further round after so many for each cell and direction, once there are 5."""
    reference: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Time the reference backend too, where its memory is below the limit."""
    decode: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Time one query against a cache of keys too."""
    caches: Annotated[str, tyro.conf.arg(metavar="N,N,...")] = "1024,8192,32768"
    """Keys in the cache, with --decode."""
    peak_memory: bool = True
    """Take the peak memory too, each in a process of its own."""
    memory_limit: Annotated[float | None, tyro.conf.arg(metavar="GIB")] = None
    """For baselines that write out all pairs; half of the memory that is free if left out."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """The folder for results, tables and plots; runs/bench if left out."""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """The file for the results; DIR/DATE-cpu-ISA.json if left out."""


@dataclass(frozen=True)
class Compile:
    """Compile the kernels for GPUs, on a machine that needs none, and see what they take.

    The exit status is 1 if one of them does not compile, spills registers, or takes more shared
    memory than a block of threads may have.
    """

    targets: Annotated[str, tyro.conf.arg(metavar="A,B,...")] = "sm_80,sm_90,sm_100,gfx942"
    """Kinds of GPUs."""
    ops: Annotated[str | None, tyro.conf.arg(metavar="A,B,...")] = None
    """softmax, bias_table, bias_dense, relative, cope, cope_separate, cope_approximate, cope_alibi,
    forgetting, stick_breaking; all of them if left out."""
    all: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Every op, dtype and head dimension, with and without `start`, for each target, which takes
    hours. Else what is shipped for the target, which takes ten minutes on two cores."""
    jobs: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Processes; one for each core if left out."""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """A file for the results."""


@dataclass(frozen=True)
class Gpu:
    """Measure on this machine's GPU: check each op first, then time it beside the others.

    Where there is PyTorch and Triton but no tyro: PYTHONPATH=src python -m milepost.bench.gpu.
    Results are written after each step; what the time did not suffice for is named.
    """

    ops: Annotated[str | None, tyro.conf.arg(metavar="A,B,...")] = None
    """softmax, bias, bias_dense, relative, cope, cope_separate, cope_alibi, forgetting,
    stick_breaking; all of them if left out."""
    lengths: Annotated[str, tyro.conf.arg(metavar="N,N,...")] = (
        "1024,2048,4096,8192,16384,32768,65536"
    )
    """Tokens in a sequence."""
    head_dims: Annotated[str, tyro.conf.arg(metavar="N,N,...")] = "64,128"
    """Of queries, keys and values."""
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    """Of queries, keys and values."""
    parts: Annotated[str | None, tyro.conf.arg(metavar="A,B,...")] = None
    """checks, table, sweep, decode, memory, model, others, models, rest; all of them if left
    out."""
    seconds: float = 540.0
    """How long it may take."""
    rounds: int = 5
    """At most so many for each cell and direction."""
    dry_run: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print what would be done and how long it should take; needs no GPU."""
    tune: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Find the kernels' blocks instead."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """The folder for results, tables and plots; runs/bench if left out."""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """The file for the results; DIR/DATE-gpu-NAME.json if left out."""
    resume: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Go on with the results in this file, where a run left off."""


@dataclass(frozen=True)
class Table:
    """Print the tables of a saved result."""

    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """As `milepost bench cpu`, `gpu` or `compile` wrote it."""
    markdown: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """As Markdown."""
    summary: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Only the figures that are quoted: a row for each op, gates and number of threads."""
    plot: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Draw the tables and plots beside the file again, too."""


@tyro.conf.configure(tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes)
@dataclass(frozen=True)
class Arguments:
    """Measure the speed and memory of the ops, or show what was measured."""

    what: Cpu | Gpu | Compile | Table


def run(arguments: Arguments) -> int:
    """Measure, compile or show; 1 if an op was wrong or a part could not be measured."""
    if isinstance(arguments.what, Table):
        return show(arguments.what)
    if isinstance(arguments.what, Compile):
        return compile_kernels(arguments.what)
    if isinstance(arguments.what, Gpu):
        return measure_on_gpu(arguments.what)
    return measure(arguments.what)


def compile_kernels(arguments: Compile) -> int:
    """Compile the kernels for GPUs."""
    from milepost.bench import compile as compiling
    from milepost.bench import compiled, write
    from milepost.bench.live import CompileLine
    from milepost.bench.plan import words

    if arguments.json is not None:
        # says what is wrong with the path, if anything is
        write.place(date="", kernels="", out=None, file=arguments.json)
    with CompileLine("compile") as line:
        record = compiling.run(
            words("targets", arguments.targets),
            ops=None if arguments.ops is None else words("ops", arguments.ops),
            which="every" if arguments.all else "shipped",
            jobs=arguments.jobs,
            watch=line,
        )
    write.print_all(compiled.terminal(record))
    if arguments.json is not None:
        compiled.write(arguments.json, record)
        print(arguments.json)
    failed = list(compiled.failures(record))
    for failure in failed:
        print(failure, file=sys.stderr)
    return 1 if failed else 0


def show(arguments: Table) -> int:
    """Print a saved result."""
    from milepost.bench import compiled, results, table, write
    from milepost.bench.gpu import results as gpu_results

    if compiled.is_one(arguments.file):
        kernels = compiled.load(arguments.file)
        if arguments.markdown:
            print(compiled.markdown(kernels, only_summary=arguments.summary), end="")
        else:
            write.print_all(compiled.terminal(kernels, only_summary=arguments.summary))
        return 0
    if gpu_results.kind_of(arguments.file) == gpu_results.KIND:
        return show_gpu(arguments)
    record = results.load(arguments.file)
    if arguments.markdown:
        print(table.markdown(record, only_summary=arguments.summary), end="")
    else:
        write.show(record, only_summary=arguments.summary)
    if arguments.plot:
        from milepost.bench import plot

        plot.draw(record)  # says what is missing where matplotlib is
        for path in write.write(record, arguments.file.parent, arguments.file.stem):
            print(path, file=sys.stderr)
    return 0


def show_gpu(arguments: Table) -> int:
    """Print a saved result of `milepost bench gpu`."""
    from milepost.bench import write
    from milepost.bench.gpu import command, results, table

    record = results.load(arguments.file)
    if arguments.markdown:
        print(table.markdown(record, only_summary=arguments.summary), end="")
    else:
        write.print_all(table.terminal(record, only_summary=arguments.summary))
    if arguments.plot:
        table.plots(record)  # says what is missing where matplotlib is
        for path in command.drawings(record, arguments.file):
            print(path, file=sys.stderr)
    return 0


def measure_on_gpu(arguments: Gpu) -> int:
    """Run a benchmark on a GPU."""
    from dataclasses import fields

    from milepost.bench.gpu.command import Request, main
    from milepost.bench.gpu.plan import Options

    given = {field.name: getattr(arguments, field.name) for field in fields(arguments)}
    options = Options(**{field.name: given.pop(field.name) for field in fields(Options)})
    return main(Request(options=options, **given))


def measure(arguments: Cpu) -> int:
    """Run a benchmark."""
    from datetime import UTC, datetime
    from importlib.util import find_spec

    from milepost.bench import results, write
    from milepost.bench.cpu import run as run_bench
    from milepost.bench.live import BenchLine
    from milepost.bench.plan import plan, words
    from milepost.ops import native

    chosen = plan(
        ops=None if arguments.ops is None else words("ops", arguments.ops),
        lengths=arguments.lengths,
        head_dims=arguments.head_dims,
        threads=arguments.threads,
        caches=arguments.caches if arguments.decode else None,
        backend=arguments.backend,
        isa=arguments.isa,
        dtype=arguments.dtype,
        rounds=arguments.rounds,
        seconds=arguments.seconds,
        reference=arguments.reference,
        peak_memory=arguments.peak_memory,
        memory_limit=arguments.memory_limit,
    )
    kernels = chosen.backend
    if chosen.backend == "native":
        kernels = chosen.isa or native.isa() or chosen.backend
    path = write.place(
        date=datetime.now(UTC).date().isoformat(),
        kernels=kernels,
        out=arguments.out,
        file=arguments.json,
    )
    if find_spec("matplotlib") is None:
        print(
            "note: no plots without matplotlib, the tables come all the same; "
            'pip install "milepost[plot]"',
            file=sys.stderr,
        )
    try:
        with BenchLine(f"bench, {kernels}") as line:
            record = run_bench(chosen, path, watch=line)
    except KeyboardInterrupt:
        print(
            f"stopped; `milepost bench table {path}` shows what there is",
            file=sys.stderr,
        )
        return 130
    write.show(record)
    folder = path.parent if arguments.out is None else arguments.out
    for written in (path, *write.write(record, folder, path.stem)):
        print(written)
    failed = list(results.failures(record))
    for failure in failed:
        print(failure, file=sys.stderr)
    return 1 if failed else 0
