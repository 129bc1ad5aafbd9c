"""One file per paper table or figure: `cope_table2.py` is the study `cope-table2`.

The folder is the registry: a new file that defines `STUDY` is a new study, named after the file.
"""

from importlib import import_module
from pkgutil import iter_modules

from milepost.errors import unknown
from milepost.studies.costs.study import CostStudy
from milepost.studies.extension import Extension
from milepost.studies.study import Study

_HARNESS = {
    "cell",
    "extend",
    "extension",
    "forecast",
    "language",
    "plan",
    "progress",
    "run",
    "study",
}


def names() -> tuple[str, ...]:
    """The studies there are."""
    files = {module.name for module in iter_modules(__path__) if not module.ispkg} - _HARNESS
    return tuple(sorted(file.replace("_", "-") for file in files))


def load(name: str) -> Study | Extension | CostStudy:
    """The study of that name."""
    if name not in names():
        raise unknown("study", name, names())
    study = import_module(f"{__name__}.{name.replace('-', '_')}").STUDY
    assert isinstance(study, Study | Extension | CostStudy)
    assert study.name == name
    return study
