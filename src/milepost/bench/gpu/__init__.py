"""Speed and memory on a GPU: every op against PyTorch's attention and the published kernels.

    python -m milepost.bench.gpu        from a source tree (PYTHONPATH=src), without tyro
    milepost bench gpu                  the same, where milepost is installed

cells.py        one cell of a table: an op, its gates and sizes, and how much work that is
baselines.py    all that takes part in a cell, and why something does not
device.py       the GPU: its clock, its memory, its name; and a CPU in its place, for the tests
timing.py       paired rounds of many calls each
worker.py       checks in processes of their own, several at once: compiling is most of them
plan.py         what is done, in which order, and how long that should take
model.py        a 124M model in training, with each encoding
run.py          the run, within its time
tune.py         which blocks the kernels should take
results.py      what a file of results holds
table.py        its tables
command.py      the options, and what the command does with them
"""
