from dataclasses import fields, replace
from itertools import product

import pytest

from milepost import encoding, studies, tasks
from milepost.errors import UsageError
from milepost.model import Config
from milepost.report.claims import bears_out
from milepost.study.cell import Cell
from milepost.study.study import Figure, Row, Study
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


TABLE_5 = {
    ("prose", "x1"): {"absolute": 24.87, "relative": 23.81, "cope": 23.46, "cope+relative": 23.23},
    ("code", "x1"): {"absolute": 4.7, "rope": 4.1, "cope": 3.9, "cope+rope": 4.0},
}
TABLE_8 = {
    ("prose", "x1"): {
        "absolute": 24.87,
        "cope": 23.46,
        "val-gates": 23.33,
        "sep-keys": 23.18,
        "tables of their own": 23.58,
        "p_max low": 23.22,
        "p_max = T": 23.31,
        "cope-alibi": 25.09,
    }
}
ADDITION = {("addition", "mean"): {"rope": 26.32, "randomized": 26.56, "none": 22.45}}
ADDITION["addition", "mean"] |= {"fire": 26.98, "tape": 32.82, "tape + yarn": 33.92}
SHORT_ADDITION = {
    ("addition", "mean"): {"rope": 26.12, "randomized": 26.12, "fire": 39.44, "tape": 41.42}
}
DIAGONAL = {("prose", "last"): {"rope": 0.30, "tape": 0.17}}
ROWS_OF_TAPE = ("rope", "feed forward alone", "attention alone", "tape", "not equivariant")
ROWS_OF_TAPE += ("no tensors", "B′ = 12", "B′ = 24", "B′ = 96", "B′ = 192")
TABLES_6_AND_7 = {
    ("prose", f"x{factor}"): dict(zip(ROWS_OF_TAPE, printed, strict=True))
    for factor, printed in {
        "0.125": (139.2, 143.3, 142.7, 132.0, 132.9, 138.4, 133.2, 133.0, 133.2, 133.0),
        "0.25": (92.8, 95.0, 94.3, 86.6, 87.8, 91.3, 87.9, 86.1, 87.5, 87.3),
        "0.5": (69.3, 70.7, 70.1, 63.9, 65.4, 67.8, 65.2, 63.2, 64.5, 64.5),
        "1": (57.2, 58.4, 57.6, 52.2, 54.1, 55.7, 53.6, 51.8, 52.7, 53.0),
    }.items()
}
TASKS = ("qasper", "contract_nli", "narrative_qa", "quality", "qmsum", "summ_screen_fd")
TASKS += ("gov_report",)
SCROLLS = {
    (task, task): {row: number for row, number in printed.items() if number is not None}
    for task, printed in zip(
        TASKS,
        (
            dict(zip(("rope", "alibi", "randomized", "fire", "xpos", "tape"), column, strict=True))
            for column in (
                (8.39, 8.25, 13.44, 3.41, 9.02, 11.52),
                (65.00, 69.62, 62.01, 71.26, 71.75, 72.80),
                (1.77, 4.11, 4.63, 0.48, 4.83, 6.79),
                (0.04, 0.0, 0.38, 1.25, 0.24, 11.60),
                (6.34, 9.92, 8.43, 8.78, 10.73, 12.42),
                (5.63, 9.78, 8.31, 7.42, 9.38, 10.34),
                (9.71, 18.81, 8.93, None, 16.38, 15.18),
            )
        ),
        strict=True,
    )
}
HARNESS = {
    ("lm-eval", task): dict(zip(("lora", "longlora", "theta", "tape"), column, strict=True))
    for task, column in {
        "mmlu_humanities": ((39.09, 0.69), (37.53, 0.69), (37.45, 0.69), (37.96, 0.69)),
        "mmlu_social_sciences": ((46.47, 0.88), (43.55, 0.88), (43.16, 0.88), (45.40, 0.88)),
        "mmlu_stem": ((33.65, 0.83), (32.54, 0.83), (33.05, 0.83), (33.27, 0.83)),
        "mmlu_other": ((45.83, 0.89), (43.84, 0.88), (44.64, 0.88), (45.06, 0.88)),
        "arc_challenge": ((45.31, 1.45), (45.31, 1.45), (45.65, 1.46), (46.25, 1.46)),
        "arc_easy": ((74.28, 0.90), (74.16, 0.90), (74.24, 0.90), (74.16, 0.90)),
    }.items()
}
# dimension, layers / heads: in distribution, out of it
TABLE_7 = {
    "absolute 256, 4/4": ((6.8, 6.9), (21.7, 7.9)),
    "absolute 256, 2/4": (11.1, 10.6),
    "absolute 256, 4/2": (0.1, 18.0),
    "absolute 256, 2/2": (13.9, 31.5),
    "absolute 128, 4/4": (5.4, 24.8),
    "absolute 128, 2/4": (0.08, 19.9),
    "absolute 128, 4/2": (0.07, 16.5),
    "absolute 128, 2/2": (19.1, 28.6),
    "absolute, hard attention": (50.7, 49.1),
    "rope 256, 4/4": ((1.8, 3.1), (20.3, 2.9)),
    "rope 256, 2/4": (5.1, 14.7),
    "rope 256, 4/2": (0.02, 19.0),
    "rope 256, 2/2": (5.4, 19.8),
    "rope 128, 4/4": (0.1, 8.9),
    "rope 128, 2/4": (0.1, 18.2),
    "rope 128, 4/2": (0.02, 17.3),
    "rope 128, 2/2": (14.4, 25.2),
    "cope 256, 4/4": ((0.03, 0.06), (4.9, 4.4)),
    "cope 256, 2/4": (0.0, 13.2),
    "cope 256, 4/2": (0.0, 3.0),
    "cope 256, 2/2": (0.0, 14.6),
    "cope 128, 4/4": (0.2, 33.2),
    "cope 128, 2/4": (0.03, 22.3),
    "cope 128, 4/2": (0.03, 14.5),
    "cope 128, 2/2": (0.02, 24.5),
    "cope-mlp": (0.03, 5.9),
    "cope-mlp, first layer": (0.9, 24.3),
    "cope-alibi, from 1": ((0.0, 0.0), (11.4, 3.4)),
    "cope-alibi, from 1/4": ((0.0, 0.0), (8.7, 7.6)),
    "cope-alibi, from 1/16": ((0.0, 0.0), (17.1, 1.5)),
    "cope-alibi, learned": ((0.0, 0.0), (11.4, 4.0)),
}
FLIP_FLOP = {
    ("flip-flop", name): {row: numbers[i] for row, numbers in TABLE_7.items()}
    for i, name in enumerate(("in", "sparse"))
}


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("cope-table2", TABLE_2),
        ("cope-table3", TABLES_3_AND_4),
        ("cope-table5", TABLE_5),
        ("cope-table7", FLIP_FLOP),
        ("cope-table8", TABLE_8),
        ("tape-figure2", ADDITION),
        ("tape-figure4", SHORT_ADDITION),
        ("tape-figure7", DIAGONAL),
        ("tape-table1", SCROLLS),
        ("tape-table6", TABLES_6_AND_7),
        ("tape-table9", HARNESS),
    ],
)
def test_the_papers_numbers(name, printed):
    found = {}
    for table in studies.load(name).tables:
        for column in table.columns:
            if column.paper:
                found.setdefault((column.arm, column.test_set), {}).update(column.paper)
                assert column.source
    assert found == {
        place: {
            row: Figure(*numbers) if isinstance(numbers, tuple) else Figure(numbers)
            for row, numbers in rows.items()
        }
        for place, rows in printed.items()
    }


STUDIES = [name for name in studies.names() if type(studies.load(name)) is Study]


def test_there_is_a_study_for_every_table_and_figure():
    assert set(studies.names()) == {
        *(f"cope-table{n}" for n in (1, 2, 3, 5, 7, 8)),
        *(f"cope-figure{n}" for n in (2, 3, 4)),
        *("cope-saturation", "cope-pairs", "cope-gates"),
        *(f"tape-table{n}" for n in (1, 2, 3, 6, 8, 9)),
        *(f"tape-figure{n}" for n in (2, 4, 7)),
        *("fox-length", "fox-needle", "fox-pro", "stick-breaking-remainder"),
    }


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("scale", recipes.SCALES)
def test_every_column_is_measured_by_some_cell(name, scale):
    study = studies.load(name)
    cells = study.cells(scale, study.encodings, 1)
    assert len({(cell.arm, cell.encoding) for cell in cells}) == len(cells)
    tested = {(cell.arm, test_set) for cell in cells for test_set in cell.test_sets}
    probed = {(cell.arm, probe) for cell in cells for probe in cell.probes}
    for table in study.tables:
        for column in table.columns:
            if column.probe:
                assert (column.arm, column.probe) in probed
            else:
                assert (column.arm, column.test_set) in tested
                assert column.metric == tasks.build(study.arm(column.arm).task).headline
            assert set(column.paper) <= set(study.encodings)
            assert bool(column.paper) <= bool(column.source)


@pytest.mark.parametrize("name", STUDIES)
def test_claims_and_pictures_are_about_what_there_is(name):
    study = studies.load(name)
    columns = {table.name for table in study.tables} | {
        f"{table.name}/{column.title}" for table in study.tables for column in table.columns
    }
    for claim in study.claims:
        assert set(claim.columns) <= columns
        assert {*claim.better, *claim.worse} <= set(study.encodings)
        assert not set(claim.better) & set(claim.worse)
        judged = bool(claim.why_not) + bool(claim.worse) + (claim.within is not None)
        assert judged == 1, claim
        assert bool(claim.columns) != bool(claim.why_not)
    names = [picture.name for picture in study.pictures]
    assert len(set(names)) == len(names)
    for picture in study.pictures:
        probes = {probe.name or probe.kind for probe in study.arm(picture.arm).probes}
        assert picture.probe in probes or picture.kind == "history"


@pytest.mark.parametrize("name", [*STUDIES, "tape-table1"])
def test_the_papers_own_figures_bear_out_its_claims(name):
    """A claim asks for no more than the paper shows, where it prints figures."""
    study = studies.load(name)
    for claim in study.claims:
        if "itself not" in claim.where:  # the paper's text is at odds with its table
            continue
        for table in study.tables:
            for column in table.columns:
                if not {table.name, f"{table.name}/{column.title}"} & set(claim.columns):
                    continue
                printed = {row: figure.mean for row, figure in column.paper.items()}
                if claim.within is not None:
                    for number in (printed[row] for row in claim.better if row in printed):
                        beyond = number - claim.within
                        assert (beyond >= 0) if table.unit.higher else (beyond <= 0), claim
                for better, worse in product(claim.better, claim.worse):
                    if {better, worse} <= set(printed):
                        one, other = printed[better], printed[worse]
                        alike = abs(one - other) <= claim.same * min(one, other)
                        ahead = 0 if alike else 1 if (one > other) == table.unit.higher else -1
                        assert bears_out(claim, ahead) == 1, (claim, column.title)


@pytest.mark.parametrize("name", STUDIES)
def test_a_rows_settings_fit_its_encoding(name):
    study = studies.load(name)
    for scale in recipes.SCALES:
        for cell in study.cells(scale, study.encodings, 1):
            encoding.check(cell.settings.encoding, cell.settings.encoding_options)
            assert set(cell.settings.model) <= {field.name for field in fields(Config)}


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


def test_a_setting_of_one_task_is_for_the_arms_that_have_it():
    study = studies.load("cope-table2")
    given = study.with_settings({"length": 32, "steps": 3, "clip": None})
    assert given.lacking == {"length": ["selective-copy"]}
    flip_flop, copy = given.cells("mini", ("rope",), 1)
    assert flip_flop.settings.task_settings["length"] == 32
    assert (copy.settings.task_settings, copy.settings.steps) == ({"data": 24, "blanks": 24}, 3)
    assert flip_flop.settings.clip is copy.settings.clip is None
    assert given.cell("mini", "selective-copy", "rope", 0) == copy
    with pytest.raises(UsageError, match="unknown setting 'lenght': did you mean 'length'"):
        study.with_settings({"lenght": 32}).cells("mini", ("rope",), 1)


def test_an_unknown_study_is_named_with_the_nearest():
    with pytest.raises(UsageError, match="unknown study 'cope-table': did you mean 'cope-table"):
        studies.load("cope-table")


@pytest.fixture
def cell():
    arm = studies.load("cope-table2").arm("flip-flop")
    return Cell.build(arm, "mini", Row("cope", "cope"), 0)


def test_the_hash_does_not_depend_on_the_order_of_keys(cell):
    def turned(mapping):
        return dict(reversed(mapping.items()))

    settings = replace(
        cell.settings,
        model=turned(cell.settings.model),
        task_settings=turned(cell.settings.task_settings),
    )
    assert list(settings.model) != list(cell.settings.model)
    other = Cell("other arm", "other row, same numbers", settings, turned(cell.test_sets))
    assert other.hash == cell.hash


def test_a_hash_that_results_are_named_after_stays():
    settings = Settings(
        task="flip-flop", encoding="rope", model={"dim": 8}, steps=1, batch=1, lr=0.1
    )
    assert Cell("a", "b", settings, {"in": 4}).hash == "9c0db9da6366a63f"


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
        "evaluate_on": ["sparse"],
    }
    assert set(changes) == {field.name for field in fields(Settings)}
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
