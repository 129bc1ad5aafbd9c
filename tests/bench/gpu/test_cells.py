"""A cell's work, from which its rate follows, and the gates that it is measured with."""

from milepost.bench.cases import TYPICAL
from milepost.bench.gpu import cells
from milepost.bench.gpu.cells import Cell
from milepost.bench.results import FORWARD


def test_a_cell_knows_its_work(monkeypatch):
    monkeypatch.setattr(cells, "TOKENS", 16384)
    monkeypatch.setattr(cells, "HEADS", 16)
    cell = Cell("softmax", TYPICAL, 64, 4096)
    assert cell.shape.B == 4
    assert cell.flops(FORWARD) == 4 * 4 * 16 * 4096 * 4096 * 64 / 2
    assert cell.flops(cells.BACKWARD) == 2.5 * cell.flops(FORWARD)
    assert Cell("softmax", TYPICAL, 64, 65536).shape.B == 1
