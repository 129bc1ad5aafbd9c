// z = q·e for every row e of a table, one row of z per query of the tile, and its gradients.
#pragma once

#include "gemm.hpp"
#include "tiles.hpp"

namespace milepost {
namespace {

// A table as the products want it, packed once: sideways [D, rows] times `factor`, rows [rows, D]
struct PackedTable {
    Table from;
    long D = 0, columns = 0, heads = 0;
    float *sideways = nullptr, *rows = nullptr;

    PackedTable(const Table& from, long D, long H)
        : from(from), D(D), columns(whole_vectors(from.rows)), heads(from.head ? H : 1) {}
    long width() const { return whole_vectors(D); }
    void place(Arena& arena, bool backward) {
        sideways = arena.floats(heads * D * columns);
        if (backward) rows = arena.floats(heads * from.rows * width());
    }
    void pack(float factor, float row_factor) const {
        for (long h = 0; h < heads; h++)
            for (long p = 0; p < columns; p++)
                for (long d = 0; d < width(); d++) {
                    const bool real = p < from.rows && d < D;
                    const float x = real ? from.data[h * from.head + p * D + d] : 0;
                    if (d < D) sideways[(h * D + d) * columns + p] = x * factor;
                    if (rows && p < from.rows)
                        rows[(h * from.rows + p) * width() + d] = x * row_factor;
                }
    }
};

// The rows of z of a query tile, each with room on either side: before it for lanes that no query
// sees, after it copies of its last entry, which stands for everything beyond
struct PositionLogits {
    const PackedTable* table = nullptr;
    long before = 0, after = 0, stride = 0, reach = 0;
    float *z = nullptr, *grad = nullptr;

    void place(Arena& arena, const PackedTable& packed, long front, long back, bool backward) {
        table = &packed;
        before = front, after = back;
        stride = before + packed.columns + after;
        z = arena.floats(TILE * stride);
        if (backward) grad = arena.floats(TILE * stride);
    }
    long last() const { return table->from.rows - 1; }
    const float* row(int r) const { return z + r * stride + before; }
    float* grad_row(int r) const { return grad + r * stride + before; }

    // Only entries that so many keys can reach are made
    void begin(const QueryTile& q, const float* query) {
        reach = least(table->from.rows, q.newest - q.oldest + 3);
        const long columns = whole_vectors(reach);
        for (int r = 0; r < q.rows; r += q.queries) {
            const long head = table->heads == 1 ? 0 : q.head[r];
            multiply<false>({query + r * pitch(table->D), pitch(table->D), 1,
                             table->sideways + head * table->D * table->columns, table->columns,
                             z + r * stride + before, stride, q.queries, int(columns),
                             int(table->D)});
        }
        for (int r = 0; r < q.rows; r++) {
            float* row = z + r * stride;
            clear(row, before);
            const long from = reach == last() + 1 ? reach : columns;
            fill(row + before + from, reach == last() + 1 ? row[before + last()] : 0,
                 stride - before - from);
        }
        if (grad) clear(grad, TILE * stride);
    }

    // grad_query += dz·e, grad_table += dzᵀ·q, once every key has been seen
    void finish(const QueryTile& q, const float* query, float* grad_query, float* grad_table) {
        for (int r = 0; r < q.rows; r++) {
            float* row = grad_row(r);
            row[last()] += sum(row + last() + 1, table->columns + after - last() - 1);
        }
        const long head = table->heads == 1 ? 0 : q.head[0];
        const int width = int(table->width());
        multiply<true>({grad + before, stride, 1, table->rows + head * table->from.rows * width,
                        width, grad_query, pitch(table->D), q.rows, width, int(reach)});
        multiply<true>({grad + before, 1, stride, query, pitch(table->D), grad_table, width,
                        int(reach), width, q.rows});
    }
};

} // namespace
} // namespace milepost
