"""Speed and memory: every op against PyTorch's own attention, on the machine at hand.

cases.py        an op with its operands, for gates that saturate and gates that never do
baselines.py    what others would run in its place
contenders.py   all that takes part in a case, and why something does not
check.py        right before fast: outputs and gradients against the reference in fp64
measure.py      paired rounds
memory.py       the peak of one call, in a process of its own
plan.py         which cases
cpu.py          the run
results.py      what a file of results holds, and the figures that are quoted from it
write.py        where the files lie, and what is drawn from them
table.py        its tables
plot.py         its plot
live.py         the progress line

And what the kernels for GPUs take of one, compiled where there is none:

shipped.py      which kernels are shipped
compile.py      their compilation, for each kind of GPU
resources.py    registers, memory and instructions of a compiled kernel
compiled.py     what a file of them holds, what in it must not be, and its tables
"""
