from dataclasses import replace

import pytest

from milepost import encoding, studies, tasks
from milepost.errors import UsageError
from milepost.studies.cell import Cell
from milepost.studies.extension import Extension
from milepost.studies.study import Figure, Study
from milepost.training import recipes
from milepost.training.settings import Settings

# Typed from the paper a second time, by table and row.
TABLE_2 = {
    ("flip-flop", "in"): {"absolute": (6.8, 6.9), "rope": (1.8, 3.1), "cope": (0.03, 0.06)},
    ("flip-flop", "sparse"): {"absolute": (21.7, 7.9), "rope": (20.3, 2.9), "cope": (4.9, 4.4)},
    ("selective-copy", "in"): {"absolute": (16.9, 3.7), "rope": (40.1, 3.5), "cope": (0, 0)},
    ("selective-copy", "dense"): {"absolute": (25.6, 3.8), "rope": (100, 0), "cope": (0, 0)},
    ("selective-copy", "sparse"): {
        "absolute": (85.2, 8.4),
        "rope": (100, 0),
        "cope": (0.004, 0.006),
    },
}
TABLES_3_AND_4 = {
    ("counting-1", "in"): {"absolute": (5.3, 0.8), "relative": (1.1, 0.4), "cope": (0, 0)},
    ("counting-3", "in"): {"absolute": (67.6, 1.5), "relative": (17.8, 7.8), "cope": (1.2, 2.1)},
    ("counting-5", "in"): {"absolute": (71.5, 1.5), "relative": (22.4, 5.1), "cope": (7.4, 8.5)},
    ("counting-1", "pass x2"): {"relative": (8.8, 1.1), "cope": (0, 0)},
    ("counting-1", "pass /5"): {"relative": (34.1, 2.5), "cope": (4.0, 4.1)},
}


@pytest.mark.parametrize(
    ("name", "printed"), [("cope-table2", TABLE_2), ("cope-table3", TABLES_3_AND_4)]
)
def test_the_papers_numbers(name, printed):
    found = {}
    for table in studies.load(name).tables:
        for column in table.columns:
            if column.paper:
                found.setdefault((column.arm, column.test_set), {}).update(column.paper)
                assert column.source
    assert found == {
        place: {row: Figure(*numbers) for row, numbers in rows.items()}
        for place, rows in printed.items()
    }


def test_the_studies():
    kinds = {name: type(studies.load(name)) for name in studies.names()}
    assert kinds == {"cope-table2": Study, "cope-table3": Study, "tape-table2": Extension}


@pytest.mark.parametrize("name", ["cope-table2", "cope-table3"])
@pytest.mark.parametrize("scale", recipes.SCALES)
def test_every_column_is_measured_by_some_cell(name, scale):
    study = studies.load(name)
    cells = study.cells(scale, study.encodings, 1)
    measured = {(cell.arm, test_set) for cell in cells for test_set in cell.test_sets}
    for table in study.tables:
        for column in table.columns:
            assert (column.arm, column.test_set) in measured
            assert column.metric == tasks.build(study.arm(column.arm).task).headline
            assert set(column.paper) <= set(study.encodings)


def test_the_grid_is_arms_by_encodings_by_seeds():
    cells = studies.load("cope-table3").cells("mini", ("absolute", "cope", "alibi"), 2)
    found = [(cell.settings.seed, cell.arm, cell.settings.encoding) for cell in cells]
    assert found == [
        (seed, arm, name)
        for seed in (0, 1)
        for arm in ("counting-1", "counting-3", "counting-5")
        for name in ("absolute", "cope", "alibi")
    ]
    assert len({cell.hash for cell in cells}) == len(cells)
    assert [cell.settings.task_settings["variables"] for cell in cells[::3]] == [1, 3, 5] * 2


def test_an_encoding_named_twice_is_one_row():
    assert len(studies.load("cope-table2").cells("mini", ("rope", "rope"), 1)) == 2


@pytest.mark.parametrize(
    ("scale", "encodings", "seeds", "message"),
    [
        ("mni", ("rope",), 1, "unknown scale 'mni': did you mean 'mini'"),
        ("mini", ("roep",), 1, "unknown encoding 'roep': did you mean 'rope'"),
        ("mini", (), 1, "encodings is empty"),
        ("mini", ("rope",), 0, "seeds must be at least 1, got 0"),
    ],
)
def test_mistakes_are_named(scale, encodings, seeds, message):
    with pytest.raises(UsageError, match=message):
        studies.load("cope-table2").cells(scale, encodings, seeds)


def test_an_unknown_study_is_named_with_the_nearest():
    with pytest.raises(UsageError, match="unknown study 'cope-table': did you mean 'cope-table"):
        studies.load("cope-table")


@pytest.fixture
def cell():
    arm = studies.load("cope-table2").arm("flip-flop")
    return Cell.build(arm, "mini", "cope", 0)


def test_the_hash_does_not_depend_on_the_order_of_keys(cell):
    def turned(mapping):
        return dict(reversed(mapping.items()))

    settings = replace(
        cell.settings,
        model=turned(cell.settings.model),
        task_settings=turned(cell.settings.task_settings),
    )
    assert list(settings.model) != list(cell.settings.model)
    other = Cell("other arm, same numbers", settings, turned(cell.test_sets))
    assert other.hash == cell.hash


def test_a_hash_that_results_are_named_after_stays():
    settings = Settings(
        task="flip-flop", encoding="rope", model={"dim": 8}, steps=1, batch=1, lr=0.1
    )
    assert Cell("a", settings, {"in": 4}).hash == "9c0db9da6366a63f"


def test_the_hash_depends_on_every_setting(cell):
    changes = {
        "task": "selective-copy",
        "task_settings": {"length": 130},
        "encoding": "rope",
        "encoding_options": {"p_max": 5},
        "model": {**cell.settings.model, "dim": 32},
        "seed": 1,
        "steps": 7,
        "batch": 7,
        "accumulate": 2,
        "optimizer": "adam",
        "lr": 0.5,
        "betas": (0.5, 0.6),
        "eps": 0.5,
        "weight_decay": 0.5,
        "schedule": "constant",
        "warmup": 7,
        "clip": None,
        "precision": "bf16",
        "compile": True,
        "train_sequences": 7,
        "evaluate_every": 7,
        "evaluate_sequences": 7,
    }
    assert set(changes) == set(cell.settings.to_dict())
    hashes = {
        replace(cell, settings=replace(cell.settings, **{name: value})).hash
        for name, value in changes.items()
    }
    hashes.add(replace(cell, test_sets={**cell.test_sets, "in": 1}).hash)
    assert len(hashes | {cell.hash}) == len(changes) + 2


@pytest.mark.parametrize("scale", recipes.SCALES)
@pytest.mark.parametrize("task", tasks.names())
@pytest.mark.parametrize("name", ["absolute", "cope", "cope+rope", "rope"])
def test_recipes_fit_every_test_set(task, scale, name):
    settings = recipes.settings(task, scale, name)
    built = tasks.build(task, **settings.task_settings)
    longest = max(test_set.task.max_length for test_set in built.test_sets().values())
    assert settings.model["max_length"] == longest
    assert set(settings.encoding_options) <= set(encoding.options(name))
    assert ("p_max" in settings.encoding_options) == name.startswith("cope")
    assert set(recipes.test_sequences(task, scale)) == set(built.test_sets())


def test_a_recipe_gives_way_to_what_is_asked_for():
    settings = recipes.settings(
        "counting",
        "paper",
        "cope",
        7,
        task_settings={"variables": 5},
        encoding_options={"p_max": 9},
        model={"dim": 32},
        steps=3,
    )
    assert settings.task_settings == {"variables": 5}
    assert settings.encoding_options == {"p_max": 9, "convention": "released"}
    assert (settings.model["dim"], settings.model["layers"]) == (32, 4)
    assert (settings.seed, settings.steps, settings.lr) == (7, 3, 7e-5)
