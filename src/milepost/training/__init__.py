"""Training: settings in, a run directory out.

settings.py    everything that decides the numbers of a run
recipes.py     the settings of each task at each scale
data.py        which sequences a step sees
schedule.py    the learning rate of a step
step.py        one step of the optimizer
score.py       error rates of a model on batches
device.py      where, and with which random state
distributed.py several processes that train one model
rundir.py      the run directory, its lock and its metrics
checkpoint.py  all that a run needs to continue, in one file
shards.py      its tensors, where several processes write them
interrupt.py   Ctrl-C as a polite request
session.py     steps, metrics and checkpoints in a run directory
loop.py        `train`
"""
