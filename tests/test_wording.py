from milepost.wording import counted


def test_one_is_no_plural():
    assert [counted(n, "cell") for n in (0, 1, 2)] == ["0 cells", "1 cell", "2 cells"]
    assert [counted(n, "goes", "go") for n in (1, 2)] == ["1 goes", "2 go"]
