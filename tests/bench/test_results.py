import json

import pytest

from milepost.bench import results
from milepost.errors import UsageError


def test_a_ratio_is_the_median_of_those_of_the_rounds():
    timed = results.timed({"sdpa": [1.0, 2.0, 4.0], "milepost": [3.0, 4.0, 4.0]})
    assert timed["milepost"]["ratios"] == [3.0, 2.0, 1.0]
    assert timed["milepost"]["ratio"] == 2.0  # and not the 4/2 of the medians' by chance:
    timed = results.timed({"sdpa": [1.0, 2.0, 4.0], "milepost": [5.0, 2.0, 2.0]})
    assert timed["milepost"]["ratio"] == 1.0
    assert timed["milepost"]["median"] / timed["sdpa"]["median"] == 1.0
    assert timed["milepost"]["minimum"] == 2.0
    assert timed["sdpa"]["ratio"] == 1.0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is no file of results: give the JSON file that"),
        ("{", "is damaged, it is not JSON"),
        ('{"kind": "cpu"}', "is damaged, format, date, .* is missing"),
        ('{"task": "flip-flop"}', "holds something else than results: give the JSON file that"),
    ],
)
def test_a_file_of_another_kind_is_refused(content, message, tmp_path):
    path = tmp_path / "result.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=message):
        results.load(path)


def test_another_format_is_refused(tmp_path):
    path = tmp_path / "result.json"
    path.write_text(json.dumps(dict.fromkeys(results.FIELDS, 7) | {"kind": "cpu"}))
    with pytest.raises(UsageError, match="has format 7, this release reads 1"):
        results.load(path)


def entry(contender, keys, size):
    return {
        "op": "cope",
        "head_dim": 64,
        "contender": contender,
        "keys": keys,
        "bytes": size,
        "results": 2**20,
    }


def test_memory_grows_as_a_power_of_the_length():
    record = {
        "memory": [
            *(entry("milepost", keys, 2**20 + 1024 * keys) for keys in (1024, 2048, 4096)),
            *(entry("listing", keys, 2**20 + 32 * keys**2) for keys in (1024, 4096)),
            *(entry("sdpa", keys, 2**20 + keys) for keys in (1024, 4096)),
            *(entry("plain", keys, 2**20 + 1024 * keys) for keys in (1024, 2048)),
            {"op": "cope", "head_dim": 64, "contender": "x-transformers", "failure": "none"},
        ]
    }
    found = {one.contender: one for one in results.growth(record)}
    assert found.keys() == {"milepost", "listing", "sdpa", "plain"}
    assert (found["milepost"].keys, found["milepost"].per_token) == (4096, 1024)
    assert found["milepost"].power == pytest.approx(1)
    assert found["listing"].power == pytest.approx(2)
    assert found["sdpa"].power is None  # too little to say
    assert found["plain"].power is None  # and too near each other
