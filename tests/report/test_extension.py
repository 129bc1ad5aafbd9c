"""The tables, claims and page of a study of context extension, from results typed by hand."""

import json
import re
from dataclasses import replace
from math import log

import pytest
from rich.console import Console

from milepost import studies
from milepost.errors import UsageError
from milepost.report import extension, extension_plots, results
from milepost.report.write import show_and_write
from milepost.study.extension.study import Claim

STUDY = studies.load("tape-table2")
T = 64
PERPLEXITY = {"base": 5.0, "lora": 4.0, "longlora": 6.0, "theta": 5.0, "tape": 3.0}


def result(row, seed, *, perplexity, share=0.9, base=None):
    """Of a row whose perplexity is the same at every length, and of ten keys at each depth."""
    return {
        "settings": {
            "checkpoint": None,
            "layers": 2,
            "heads": 2,
            "dim": 8,
            "base_steps": 9,
            "steps": 3,
            "accumulate": 1,
            "texts": 2,
            "passkeys": 2,
            "factor": 2,
            "lr": 0.001,
            "warmup": 1,
            "test_tokens": 100,
            "depths": [0.0, 1.0],
            "trials": 10,
        },
        "length": T,
        "trained": {"parameters": {"lora": 1024, "norms": 40}, "model": 9999},
        "base": base or f"base of seed {seed}",
        "perplexity": {
            str(length): {"nats": log(perplexity), "perplexity": perplexity, "tokens": 99}
            for length in (16, 32, T, 2 * T)
        },
        "passkey": {
            str(length): {"0.0": [round(10 * share), 10], "1.0": [10, 10]} for length in (T, 2 * T)
        },
        "history": [],
        "seconds": 60.0,
        "versions": {"milepost": "0.1.0", "torch": "2.11.0"},
        "machine": {"system": "Linux", "processor": "Some <Processor>"},
    }


@pytest.fixture
def folder(tmp_path):
    """Make a folder of results by row and seed; a text stands for a failure's reason."""

    def make(found, rows=tuple(PERPLEXITY), seeds=2):
        declared = []
        for place, row in enumerate(rows):
            for seed in range(seeds):
                name = f"{place:08x}{seed:08x}"
                declared.append({"arm": "extension", "encoding": row, "seed": seed, "hash": name})
                content = found(row, seed)
                if content is None:
                    continue
                kind = "failed" if isinstance(content, str) else "cells"
                content = {"reason": content} if isinstance(content, str) else content
                (tmp_path / kind).mkdir(exist_ok=True)
                (tmp_path / kind / f"{name}.json").write_text(json.dumps(content))
        study = {
            "study": "tape-table2",
            "scale": "mini",
            "encodings": list(rows),
            "seeds": seeds,
            "cells": declared,
            "settings": {},
        }
        (tmp_path / "study.json").write_text(json.dumps(study))
        return tmp_path

    return make


def typed(row, seed):
    return result(row, seed, perplexity=PERPLEXITY[row] + seed)


def test_entries(folder):
    found = extension.load(folder(typed))
    assert extension.perplexity_entry(found, "lora", T) == "4.50 ± 0.71 (1.498)"
    assert extension.passkey_entry(found, "lora", T) == "95 [83, 99]"  # 38 of 40
    assert extension.trained_entry(found, "lora") == "LoRA 1,024, norms 40"
    assert extension.multiple(found, 2 * T) == "128 = 2T"
    assert extension.multiple(found, 16) == "16 = T/4"
    first = extension.grids(found)[0]
    assert first.heads == ("row", "16 = T/4", "32 = T/2", "64 = T", "128 = 2T")
    assert [row[0] for row in first.rows] == list(PERPLEXITY)


def test_what_is_missing_is_said(folder):
    def some(row, seed):
        return {"lora": "deep\nMemoryError: <i>", "tape": None}.get(row, typed(row, seed))

    found = extension.load(folder(some))
    assert extension.perplexity_entry(found, "lora", T) == "failed"
    assert extension.passkey_entry(found, "tape", T) == "not run"
    notes = extension.notes(found)
    assert any("2 of 10 cells failed" in line for line in notes)
    assert "Not every seed is there: of 2 seeds lora 0, tape 0." in notes


CLAIM = Claim("c", "w", "perplexity", better="tape", worse=("lora", "theta"), lengths=(0.5, 2.0))


def verdict_of(found, **changes):
    judged = extension.judge(found, replace(CLAIM, **changes))
    return judged.verdict, judged.why


def test_verdicts(folder):
    found = extension.load(folder(typed))
    assert verdict_of(found) == ("seen here", "4 of 4 comparisons bear it out")
    verdict, why = verdict_of(found, better="longlora")
    assert verdict == "contradicted here"
    assert why == (
        "0 of 4 comparisons bear it out, 4 go the other way "
        "(lora at 32, lora at 128, theta at 32, theta at 128)"
    )
    assert verdict_of(found, better="theta", worse=("base",))[0] == "not seen here"
    assert verdict_of(found, measure="none", why_not="too small") == (
        "not testable here",
        "too small",
    )
    keys = {"measure": "nearly all", "lengths": ()}
    assert verdict_of(found, **keys) == ("seen here", "64: 95 %; 128: 95 %")
    assert verdict_of(found, measure="passkey", lengths=())[0] == "not seen here"


def test_a_difference_is_judged_seed_by_seed(folder):
    """Seeds lie far apart, and the rows of each the same small way from each other."""
    factors = {"tape": 1.0, "lora": 1.02, "theta": 1.002}

    def close(row, seed):
        return result(row, seed, perplexity=(3.0 + 4 * seed) * factors.get(row, 2.0))

    found = extension.load(folder(close))
    assert verdict_of(found, worse=("lora",))[0] == "seen here"
    assert verdict_of(found, worse=("theta",))[0] == "not seen here"  # below 0.005 nats
    one = extension.load(folder(typed, seeds=1))
    assert verdict_of(one) == ("not testable here", "two seeds of each of its rows are needed")


def test_rows_of_different_bases_are_told(folder):
    def mixed(row, seed):
        return result(row, seed, perplexity=3.0, base="another" if row == "tape" else "one")

    found = extension.load(folder(mixed))
    assert extension.bases(found) == [0, 1]
    assert any("different bases" in line for line in extension.notes(found))
    assert extension.bases(extension.load(folder(typed))) == []


def test_the_files(folder, capsys):
    directory = folder(typed)
    show_and_write(directory)
    printed = capsys.readouterr().out
    assert "4.50 ± 0.71" in printed
    markdown = (directory / "table.md").read_text()
    assert "| lora | 4.50 ± 0.71 (1.498) |" in markdown
    assert "Seen here: TAPE has the lowest perplexity at every length" in markdown
    assert "| tape | 3.641 | 3.196 | 2.901 | 2.708 |" in markdown
    assert markdown.rstrip().endswith(
        "Reproduce: milepost study tape-table2 --scale mini --encodings "
        "lora,longlora,theta,tape --seeds 2"
    )
    page = (directory / "report.html").read_text()
    assert page.count("<svg ") == 2
    assert "Some &lt;Processor&gt;" in page
    assert not re.findall(r'(?:src|href)="(?!https://arxiv|#)', page)
    assert {path.name for path in (directory / "plots").iterdir()} == {
        "perplexity.svg",
        "passkey.svg",
    }
    before = (directory / "plots" / "passkey.svg").read_bytes()
    show_and_write(directory)
    assert (directory / "plots" / "passkey.svg").read_bytes() == before


def test_every_row_has_its_own_colour_and_marker(folder):
    found = extension.load(folder(typed))
    looks = [extension_plots._look(found, row) for row in STUDY.encodings]
    assert len({look["color"] for look in looks}) == len(looks)
    assert len({look["marker"] for look in looks}) == len(looks)


def test_a_study_that_has_not_begun_has_a_page(folder):
    found = extension.load(folder(lambda *_: None))
    assert extension.draw(found) == {}
    assert "No cell has finished yet" in extension.page(found, {})
    assert list(extension.terminal(found, Console()))


def test_each_kind_of_study_is_read_by_its_own(folder, tmp_path):
    directory = folder(typed)
    with pytest.raises(UsageError, match=r"no Study: read .*report\.extension\.load"):
        results.load(directory)
    declared = json.loads((directory / "study.json").read_text())
    (directory / "study.json").write_text(json.dumps({**declared, "study": "cope-table2"}))
    with pytest.raises(UsageError, match=r"no Extension: read .*report\.tables\.load"):
        extension.load(directory)
