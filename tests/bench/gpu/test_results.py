"""Only a file of a GPU's results is read as one."""

import pytest

from milepost.bench.gpu import results
from milepost.errors import UsageError


def test_another_file_is_refused(tmp_path):
    path = tmp_path / "other.json"
    path.write_text('{"kind": "cpu"}')
    with pytest.raises(UsageError, match="no file of a GPU's results"):
        results.load(path)
