"""One file per paper table or figure: `cope_table2.py` is the study `cope-table2`.

The folder is the registry: a new file that defines `STUDY` is a new study, named after the file.
What a study is and how it is run is in `milepost.study`.
"""

from importlib import import_module
from pkgutil import iter_modules

from milepost.errors import unknown
from milepost.study.kinds import AnyStudy


def names() -> tuple[str, ...]:
    """The studies there are."""
    return tuple(sorted(module.name.replace("_", "-") for module in iter_modules(__path__)))


def load(name: str) -> AnyStudy:
    """The study of that name."""
    if name not in names():
        raise unknown("study", name, names())
    study: AnyStudy = import_module(f"{__name__}.{name.replace('-', '_')}").STUDY
    assert study.name == name
    return study
