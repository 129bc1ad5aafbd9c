"""Numbers and the words that go with them, as people are shown them."""


def counted(count: int, one: str, many: str = "") -> str:
    """`1 cell`, `2 cells`; or, with `many` given, `1 goes`, `2 go`."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"
