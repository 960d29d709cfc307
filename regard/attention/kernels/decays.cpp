// Products of queries and keys of a chunk with a decay per column, Σ_d q_id k_jd A_{j+1,d} … A_{i,d}
// for j ≤ i, and their gradients: the decay of a pair grows from key to key by one multiplication.
// And the inverse of the triangular matrix of a chunk's delta rule.
#include <algorithm>
#include <vector>

// Where a decay is below this, it counts as 0: numbers without a leading digit are slow.
template <class T> constexpr T LEAST = sizeof(T) == 4 ? T(1e-30) : T(1e-250);

template <class T>
static void forward(const T* queries, const T* keys, const T* decays, T* pairs, long chunks,
                    long rows, long width, long strict) {
#pragma omp parallel
    {
        std::vector<T> room(width);
        T* decay = room.data();
#pragma omp for schedule(static)
        for (long chunk = 0; chunk < chunks; chunk++) {
            const T* a = decays + chunk * rows * width;
            for (long i = 0; i < rows; i++) {
                const T* q = queries + (chunk * rows + i) * width;
                T* out = pairs + (chunk * rows + i) * rows;
                std::fill_n(out, rows, T(0));
                std::fill_n(decay, width, T(1));
                for (long j = i; j >= 0; j--) {
                    const T *k = keys + (chunk * rows + j) * width, *by = a + j * width;
                    T sum = 0;
#pragma omp simd reduction(+ : sum)
                    for (long d = 0; d < width; d++) {
                        const T now = decay[d], next = now * by[d];
                        sum += q[d] * k[d] * now;
                        decay[d] = next < LEAST<T> ? T(0) : next;
                    }
                    if (j < i || !strict) out[j] = sum;
                }
            }
        }
    }
}

template <class T>
static void backward(const T* queries, const T* keys, const T* decays, const T* upstream,
                     T* of_queries, T* of_keys, long chunks, long rows, long width, long strict) {
#pragma omp parallel
    {
        std::vector<T> room(width);
        T* decay = room.data();
#pragma omp for schedule(static)
        for (long chunk = 0; chunk < chunks; chunk++) {
            const T* a = decays + chunk * rows * width;
            T* to_keys = of_keys + chunk * rows * width;
            std::fill_n(to_keys, rows * width, T(0));
            for (long i = 0; i < rows; i++) {
                const T* q = queries + (chunk * rows + i) * width;
                T* to_query = of_queries + (chunk * rows + i) * width;
                std::fill_n(to_query, width, T(0));
                std::fill_n(decay, width, T(1));
                for (long j = i; j >= 0; j--) {
                    const T *k = keys + (chunk * rows + j) * width, *by = a + j * width;
                    const T g = j < i || !strict ? upstream[(chunk * rows + i) * rows + j] : T(0);
                    T* to_key = to_keys + j * width;
#pragma omp simd
                    for (long d = 0; d < width; d++) {
                        const T now = decay[d], next = now * by[d], part = g * now;
                        to_query[d] += part * k[d];
                        to_key[d] += part * q[d];
                        decay[d] = next < LEAST<T> ? T(0) : next;
                    }
                }
            }
        }
    }
}

// The inverse of I + L, for L of the numbers below the diagonal: a row is that of the identity less
// its numbers times the rows before it.
template <class T> static void inverse(const T* given, T* result, long chunks, long rows) {
#pragma omp parallel for schedule(static)
    for (long chunk = 0; chunk < chunks; chunk++) {
        const T* below = given + chunk * rows * rows;
        T* out = result + chunk * rows * rows;
        for (long i = 0; i < rows; i++) {
            T* row = out + i * rows;
            std::fill_n(row, rows, T(0));
            row[i] = 1;
            for (long j = 0; j < i; j++) {
                const T by = below[i * rows + j], *before = out + j * rows;
#pragma omp simd
                for (long c = 0; c <= j; c++) row[c] -= by * before[c];
            }
        }
    }
}

#define BOTH(T)                                                                                    \
    void forward_##T(const T* q, const T* k, const T* a, T* out, long chunks, long rows,           \
                     long width, long strict) {                                                    \
        forward<T>(q, k, a, out, chunks, rows, width, strict);                                     \
    }                                                                                              \
    void backward_##T(const T* q, const T* k, const T* a, const T* g, T* dq, T* dk, long chunks,   \
                      long rows, long width, long strict) {                                        \
        backward<T>(q, k, a, g, dq, dk, chunks, rows, width, strict);                              \
    }                                                                                              \
    void inverse_##T(const T* below, T* out, long chunks, long rows) {                             \
        inverse<T>(below, out, chunks, rows);                                                      \
    }
extern "C" {
BOTH(float)
BOTH(double)
}
