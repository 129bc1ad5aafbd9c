"""Corpora: which text, which split, and what is refused."""

import ast
import sysconfig
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from milepost import corpus
from milepost.errors import UsageError

Write = Callable[[dict[str, bytes]], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write files by name, and return their folder."""

    def written(files: dict[str, bytes]) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
        return tmp_path

    return written


def texts(loaded: dict[str, np.ndarray]) -> dict[str, bytes]:
    return {split: text.tobytes() for split, text in loaded.items()}


def many(count: int) -> dict[str, bytes]:
    return {f"{n:03}.txt": f"<{n:03}>".encode() for n in range(count)}


def test_documents_are_split_by_name_nine_to_one_half_to_one_half() -> None:
    found = [corpus.split_of(f"chapter {n}") for n in range(20_000)]
    for split, share in (("train", 0.9), ("validation", 0.05), ("test", 0.05)):
        deviation = (20_000 * share * (1 - share)) ** 0.5
        assert abs(found.count(split) - 20_000 * share) < 5 * deviation


def test_the_split_stays_what_it_was() -> None:
    """Another hash would put what old models were trained on into the test."""
    names = ("a.txt", "b.txt", "os.py", "chapter 18", "chapter 26")
    found = [corpus.split_of(name) for name in names]
    assert found == ["train", "test", "train", "validation", "test"]


def test_every_document_is_in_one_split_whole_and_in_order(write: Write) -> None:
    loaded = texts(corpus.load(str(write(many(200)))))
    documents = {split: text.split(b"\n\n") for split, text in loaded.items()}
    everything = [text for found in documents.values() for text in found]
    assert sorted(everything) == sorted(many(200).values())
    for split, found in documents.items():
        assert found == sorted(found)
        assert {corpus.split_of(f"{int(text[1:4]):03}.txt") for text in found} == {split}


def test_a_document_stays_where_it_is_when_others_come(tmp_path: Path) -> None:
    for folder, files in (("few", many(60)), ("more", many(160))):
        (tmp_path / folder).mkdir()
        for name, text in files.items():
            (tmp_path / folder / name).write_bytes(text)
    few, more = (texts(corpus.load(str(tmp_path / name))) for name in ("few", "more"))
    for split in corpus.SPLITS:
        assert set(few[split].split(b"\n\n")) <= set(more[split].split(b"\n\n")) | {b""}


def test_files_of_text_are_found_below_and_others_are_not(write: Write) -> None:
    kept = {"a.txt": b"1", "b/c.md": b"2", "b/d/e.py": b"3", "f.rst": b"4"}
    left = {
        "g.bin": b"\xff",
        "h": b"no",
        ".hidden.txt": b"no",
        ".git/i.txt": b"no",
        "e.txt": b" \n",
    }
    loaded = texts(corpus.load(str(write({**kept, **left}))))
    assert sorted(b"\n\n".join(filter(None, loaded.values())).split()) == sorted(kept.values())


def test_bytes_stay_as_they_are(write: Write) -> None:
    text = "é\r\n\tß€\n".encode()
    loaded = texts(corpus.load(str(write({"a.txt": text}))))
    assert list(filter(None, loaded.values())) == [text]


@pytest.mark.parametrize("as_folders", [False, True])
def test_a_folder_that_is_split_already_stays_so(write: Write, as_folders: bool) -> None:
    end = "/part.md" if as_folders else ".txt"
    files = {f"{split}{end}": split.encode() for split in corpus.SPLITS}
    loaded = corpus.load(str(write({**files, "notes.txt": b"in none of them"})))
    assert texts(loaded) == {split: split.encode() for split in corpus.SPLITS}


def test_a_published_test_is_not_mixed_into_training(write: Write) -> None:
    folder = write({"train.txt": b"a", "test.txt": b"b", "dev.txt": b"c"})
    with pytest.raises(UsageError, match="has train and test but no validation"):
        corpus.load(str(folder))
    assert corpus.load(str(write({"validation.txt": b"d"})))["validation"].tobytes() == b"d"


def test_a_file_is_cut_into_documents_after_lines(write: Write) -> None:
    lines = [f"{n:07}\n".encode() * 3 for n in range(100_000)]
    path = write({"long.log": b"".join(lines)}) / "long.log"
    found = list(corpus.pieces(path))
    assert b"".join(text for _, text in found) == b"".join(lines)
    assert len({name for name, _ in found}) == len(found) > 30
    for _, text in found:
        assert text.endswith(b"\n")
        assert corpus.PIECE - 8 <= len(text) <= corpus.PIECE or text is found[-1][1]
    loaded = corpus.load(str(path))
    assert all(len(loaded[split]) for split in corpus.SPLITS)


def test_a_line_longer_than_a_piece_is_cut_all_the_same(write: Write) -> None:
    path = write({"one.txt": b"x" * (2 * corpus.PIECE + 5)}) / "one.txt"
    assert [len(text) for _, text in corpus.pieces(path)] == [corpus.PIECE, corpus.PIECE, 5]


def test_a_corpus_is_read_once(write: Write) -> None:
    folder = write({"a.txt": b"before"})
    first = corpus.load(str(folder))
    write({"a.txt": b"after"})
    assert corpus.load(str(folder)) is first


def test_a_relative_path_is_that_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for place in ("one", "two"):
        (tmp_path / place / "text").mkdir(parents=True)
        (tmp_path / place / "text" / "a.txt").write_text(place)
        monkeypatch.chdir(tmp_path / place)
        found.append(b"".join(texts(corpus.load("text")).values()))
    assert found == [b"one", b"two"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.txt": b"ok", "b.txt": b"caf\xe9"}, r"expected UTF-8, got byte 3 of .*b\.txt"),
        ({"a.bin": b"ok"}, "expected text, got .* without any: give a folder of .md, .py"),
        ({"a.txt": b"\n"}, "expected text, got .* without any"),
    ],
)
def test_what_is_no_text_is_named(files: dict[str, bytes], message: str, write: Write) -> None:
    with pytest.raises(UsageError, match=message):
        corpus.load(str(write(files)))


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*gone\.txt \(No such file"):
        corpus.load(str(tmp_path / "gone.txt"))
    assert not corpus.exists(str(tmp_path / "gone.txt"))
    assert corpus.exists(str(tmp_path))
    assert corpus.exists("python-code")


def test_the_library_is_without_tests_and_installed_packages() -> None:
    names = [name for name, _ in corpus.standard_library()]
    assert names == sorted(names)
    assert {"ast.py", "json/decoder.py", "pydoc_data/topics.py"} <= set(names)
    parts = {part for name in names for part in name.split("/")}
    assert not parts & {"test", "tests", "idle_test", "site-packages", "__pycache__"}
    assert not [name for name in names if name.startswith("_sysconfigdata")]


def test_code_is_the_source_of_the_library() -> None:
    loaded = texts(corpus.load("python-code"))
    source = (Path(sysconfig.get_path("stdlib")) / "ast.py").read_bytes()
    split = corpus.split_of("ast.py")
    assert loaded[split].count(source) == 1
    assert not any(source in loaded[other] for other in corpus.SPLITS if other != split)
    assert sum(map(len, loaded.values())) > 2_000_000


def test_prose_is_what_the_library_says_of_itself() -> None:
    loaded = texts(corpus.load("python-prose"))
    said = (ast.get_docstring(ast.parse(Path(ast.__file__).read_text())) or "").encode()
    assert loaded[corpus.split_of("ast.py")].count(said) == 1
    assert loaded[corpus.split_of("pydoc_data/topics.py#lambda")].count(b"Lambdas\n*******\n") == 1
    # import statements open nearly every module, and no sentence
    assert sum(text.count(b"\nimport os\n") for text in loaded.values()) < 20
    assert all(len(text) > 10_000 for text in loaded.values())


def test_docstrings_are_in_the_order_of_the_source() -> None:
    source = '''"""Module."""
class A:
    """Class.

    Plain.
        Indented.
    """
    def b(self):
        """Method."""
        "not one"
    x: int = 1
    """nor this"""
async def c():
    r"""Func\\d."""
def d(): pass
'''
    assert (
        corpus.docstrings(source)
        == "Module.\n\nClass.\n\nPlain.\n    Indented.\n\nMethod.\n\nFunc\\d."
    )


def test_docstrings_are_found_however_deep() -> None:
    source = """
if a:
    def f(): 'if'
else:
    def f(): 'else'
try:
    def f(): 'try'
except E:
    def f(): 'except'
else:
    class F: 'no error'
finally:
    def f(): 'finally'
for _ in a:
    with b:
        async def f():
            'for'
            while c:
                match d:
                    case 1:
                        class F: 'case'
"""
    said = "if else try except no_error finally for case"
    assert corpus.docstrings(source) == "\n\n".join(said.split()).replace("_", " ")


@pytest.mark.parametrize("name", ["os.py", "typing.py", "functools.py", "socket.py"])
def test_no_docstring_of_a_module_is_missed(name: str) -> None:
    """Whatever blocks the statements of this Python have."""
    source = (Path(sysconfig.get_path("stdlib")) / name).read_text()
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, documented)]
    said = [text for node in nodes if (text := ast.get_docstring(node))]
    found = corpus.docstrings(source)
    assert len(found) == sum(map(len, said)) + 2 * (len(said) - 1)
    assert all(text in found for text in said)


def test_topics_are_read_without_importing_them() -> None:
    source = "# generated\ntopics = {'if': 'The ' 'if\\n', 'for': r'''The for'''}\n"
    assert corpus.topics(source) == {"if": "The if\n", "for": "The for"}
