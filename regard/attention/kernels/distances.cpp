// What is added to scores by distance, and its gradients: see distances.py.
#include "functions.h"

constexpr long PART = 256;  // numbers in the first cache
constexpr long GROUP = 16;  // neighbouring numbers, most of which are in one piece

// How many of the increasing bounds are below each of some numbers.
template <class T>
static void pieces_of(const T* x, const T* bounds, int* piece, long size, long count) {
    std::fill_n(piece, size, 0);
    for (long b = 0; b < count; b++) {
        const T bound = bounds[b];
        for (long i = 0; i < size; i++) piece[i] += x[i] > bound;
    }
}

static inline bool all_equal(const int* piece, long size) {
    int different = 0;
    for (long i = 1; i < size; i++) different |= piece[i] ^ piece[0];
    return !different;
}

// y = slope x + offset of the piece of each x, a row for each output.
template <class T>
static void pieces(const T* x, const T* bounds, const T* slopes, const T* offsets, T* y,
                   long numbers, long count, long outputs) {
    each((numbers + PART - 1) / PART, [=](long part) {
        const long begin = part * PART, end = std::min(begin + PART, numbers);
        int piece[PART];
        pieces_of(x + begin, bounds, piece, end - begin, count);
        for (long i = begin; i < end; i += GROUP) {
            const long size = std::min(GROUP, end - i);
            const int* p = piece + i - begin;
            const bool equal = all_equal(p, size);
            for (long o = 0; o < outputs; o++) {
                const T *slope = slopes + o * (count + 1), *offset = offsets + o * (count + 1);
                T* to = y + o * numbers + i;
                if (equal) {
                    const T by = slope[*p], more = offset[*p];
                    for (long j = 0; j < size; j++) to[j] = by * x[i + j] + more;
                } else {
                    for (long j = 0; j < size; j++) to[j] = slope[p[j]] * x[i + j] + offset[p[j]];
                }
            }
        }
    });
}

// The gradients of x and, for each chunk of numbers, of slopes and offsets.
template <class T>
static void unpieces(const T* x, const T* upstream, const T* bounds, const T* slopes, T* of_x,
                     T* of_slopes, T* of_offsets, long numbers, long count, long outputs,
                     long each_chunk) {
    const long table = outputs * (count + 1);
    each((numbers + each_chunk - 1) / each_chunk, [=](long chunk) {
        T *tilt = of_slopes + chunk * table, *lift = of_offsets + chunk * table;
        std::fill_n(tilt, table, T(0));
        std::fill_n(lift, table, T(0));
        const long stop = std::min((chunk + 1) * each_chunk, numbers);
        int piece[PART];
        for (long begin = chunk * each_chunk; begin < stop; begin += PART) {
            const long end = std::min(begin + PART, stop);
            pieces_of(x + begin, bounds, piece, end - begin, count);
            std::fill_n(of_x + begin, end - begin, T(0));
            for (long i = begin; i < end; i += GROUP) {
                const long size = std::min(GROUP, end - i);
                const int* p = piece + i - begin;
                const bool equal = all_equal(p, size);
                for (long o = 0; o < outputs; o++) {
                    const long row = o * (count + 1);
                    const T *g = upstream + o * numbers + i, *slope = slopes + row;
                    if (equal) {
                        const T by = slope[*p];
                        T one = 0, two = 0;
#pragma omp simd reduction(+ : one, two)
                        for (long j = 0; j < size; j++) {
                            of_x[i + j] += by * g[j];
                            one += g[j] * x[i + j];
                            two += g[j];
                        }
                        tilt[row + *p] += one;
                        lift[row + *p] += two;
                    } else {
                        for (long j = 0; j < size; j++) {
                            of_x[i + j] += slope[p[j]] * g[j];
                            tilt[row + p[j]] += g[j] * x[i + j];
                            lift[row + p[j]] += g[j];
                        }
                    }
                }
            }
        }
    });
}

// The sum of each diagonal of matrices: sums[j − i + rows − 1] += x[i, j], or rising sums[j + i].
template <class T>
static void along(const T* x, T* sums, long matrices, long rows, long columns, long rising) {
    each(matrices, [=](long matrix) {
        T* sum = sums + matrix * (rows + columns - 1);
        std::fill_n(sum, rows + columns - 1, T(0));
        for (long i = 0; i < rows; i++) {
            const T* row = x + (matrix * rows + i) * columns;
            T* to = sum + (rising ? i : rows - 1 - i);
            for (long j = 0; j < columns; j++) to[j] += row[j];
        }
    });
}

// Positions are in steps: the distance at (i, j) is j − i + first. Row i has the place j + shift, of
// 0 … 2 reach, in its columns from left to before right, 0 before them and 2 reach after them.
struct Band {
    long left, right, shift;
    Band(long i, long columns, long reach, long first)
        : left(std::min(std::max(i - first - reach, 0L), columns)),
          right(std::min(std::max(i - first + reach + 1, left), columns)),
          shift(first + reach - i) {}
};

// y[i, j] = x[i, place]; of keys, with a row of x for each place, x[place, j].
template <class T>
static void clipped(const T* x, T* y, long slices, long rows, long columns, long reach, long first,
                    long of_keys) {
    const long last = 2 * reach;
    each(slices * rows, [=](long r) {
        const Band band(r % rows, columns, reach, first);
        T* to = y + r * columns;
        if (of_keys) {
            const T* table = x + r / rows * (last + 1) * columns;
            std::copy_n(table, band.left, to);
            for (long j = band.left; j < band.right; j++)
                to[j] = table[(j + band.shift) * columns + j];
            std::copy(table + last * columns + band.right, table + (last + 1) * columns,
                      to + band.right);
        } else {
            const T* row = x + r * (last + 1);
            std::fill(to, to + band.left, row[0]);
            std::copy_n(row + band.left + band.shift, band.right - band.left, to + band.left);
            std::fill(to + band.right, to + columns, row[last]);
        }
    });
}

template <class T> static T sum(const T* x, const T* end) {
    T total = 0;
    const long count = end - x;
#pragma omp simd reduction(+ : total)
    for (long i = 0; i < count; i++) total += x[i];
    return total;
}

// The gradient of x: sums of y over the columns, or for keys over the rows, at each place.
template <class T>
static void unclipped(const T* upstream, T* of_x, long slices, long rows, long columns, long reach,
                      long first, long of_keys) {
    const long last = 2 * reach;
    if (!of_keys)
        each(slices * rows, [=](long r) {
            const Band band(r % rows, columns, reach, first);
            const T* g = upstream + r * columns;
            T* row = of_x + r * (last + 1);
            std::fill_n(row, last + 1, T(0));
            std::copy(g + band.left, g + band.right, row + band.left + band.shift);
            row[0] += sum(g, g + band.left);
            row[last] += sum(g + band.right, g + columns);
        });
    else
        each(slices, [=](long slice) {
            T* table = of_x + slice * (last + 1) * columns;
            std::fill_n(table, (last + 1) * columns, T(0));
            for (long i = 0; i < rows; i++) {
                const Band band(i, columns, reach, first);
                const T* g = upstream + (slice * rows + i) * columns;
                T* high = table + last * columns;
                for (long j = 0; j < band.left; j++) table[j] += g[j];
                for (long j = band.left; j < band.right; j++)
                    table[(j + band.shift) * columns + j] += g[j];
                for (long j = band.right; j < columns; j++) high[j] += g[j];
            }
        });
}

// In place, weights exp(s + t − L) of products s, and the gradients (g − mean) weight of scores.
// Weights below exp(−87), about the smallest normal float, are 0.
template <class T>
static void weigh(const T* table, const T* logs, const T* mean, T* s, T* g, long texts, long heads,
                  long rows, long columns, long by_text, long by_head, long by_row) {
    each(texts * heads * rows, [=](long r) {
        const long slice = r / rows;
        const T* t = table + slice / heads * by_text + slice % heads * by_head + r % rows * by_row;
        const T log = logs[r], middle = mean[r];
        T *weight = s + r * columns, *of = g + r * columns;
        for (long j = 0; j < columns; j++) {
            const T x = weight[j] + t[j] - log, w = x < T(-87) ? T(0) : exp_of(x);
            weight[j] = w;
            of[j] = (of[j] - middle) * w;
        }
    });
}

#define BOTH(T)                                                                                   \
    void pieces_##T(const T* x, const T* bounds, const T* slopes, const T* offsets, T* y,         \
                    long numbers, long count, long outputs) {                                     \
        pieces<T>(x, bounds, slopes, offsets, y, numbers, count, outputs);                        \
    }                                                                                             \
    void unpieces_##T(const T* x, const T* g, const T* bounds, const T* slopes, T* of_x,          \
                      T* of_slopes, T* of_offsets, long numbers, long count, long outputs,        \
                      long each_chunk) {                                                          \
        unpieces<T>(x, g, bounds, slopes, of_x, of_slopes, of_offsets, numbers, count, outputs,   \
                    each_chunk);                                                                  \
    }                                                                                             \
    void along_##T(const T* x, T* sums, long matrices, long rows, long columns, long rising) {    \
        along<T>(x, sums, matrices, rows, columns, rising);                                       \
    }                                                                                             \
    void clipped_##T(const T* x, T* y, long slices, long rows, long columns, long reach,          \
                     long first, long of_keys) {                                                  \
        clipped<T>(x, y, slices, rows, columns, reach, first, of_keys);                           \
    }                                                                                             \
    void unclipped_##T(const T* g, T* of_x, long slices, long rows, long columns, long reach,     \
                       long first, long of_keys) {                                                \
        unclipped<T>(g, of_x, slices, rows, columns, reach, first, of_keys);                      \
    }                                                                                             \
    void weigh_##T(const T* table, const T* logs, const T* mean, T* s, T* g, long texts,          \
                   long heads, long rows, long columns, long by_text, long by_head,               \
                   long by_row) {                                                                 \
        weigh<T>(table, logs, mean, s, g, texts, heads, rows, columns, by_text, by_head, by_row); \
    }
extern "C" {
BOTH(float)
BOTH(double)
}
