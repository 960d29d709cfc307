// Scores w·tanh(q + k) of rows and columns, and their gradients, with r = 1 / (1 + e^{2q} e^{2k}).
//
// The exponentials of a block of keys stay in the first cache while all rows pass, and every key that
// is loaded serves several rows. A vector register holds neighbouring keys forward, and neighbouring
// hidden units backward.
#include <algorithm>
#include <vector>

#include "functions.h"
#ifdef __AVX2__
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
constexpr int BYTES = 64;
#else
constexpr int BYTES = 32;
#endif
constexpr int BLOCK = 64;  // keys
constexpr int ROWS = 4;    // rows that share a loaded key
constexpr int PAIR = 2;    // the same backward
constexpr int GROUP = 2;   // registers of hidden units whose sums stay in registers

template <class T> struct Vector {
    typedef T type __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));
    static constexpr int size = BYTES / sizeof(T);
};

// The smaller of x and a number whose square is finite, or NaN if x is NaN, since quotients are
// added in pairs with one division, w / x + v / y = (w y + v x) / (x y).
template <class T> static inline typename Vector<T>::type bounded(typename Vector<T>::type x) {
    const auto most = (sizeof(T) == 4 ? T(1e18) : T(1e150)) - typename Vector<T>::type{};
    return x > most ? most : x;
}
#if defined(__AVX512F__)
template <> inline Vector<float>::type bounded<float>(Vector<float>::type x) {
    return (Vector<float>::type)_mm512_min_ps(_mm512_set1_ps(1e18f), (__m512)x);
}
#elif defined(__AVX2__)
template <> inline Vector<float>::type bounded<float>(Vector<float>::type x) {
    return (Vector<float>::type)_mm256_min_ps(_mm256_set1_ps(1e18f), (__m256)x);
}
#endif

// e^{2x} of rows of x, in rows of a multiple of a register; 0 behind them.
template <class T>
static void exponentials(const T* x, T* out, long rows, long hidden, long padded, T most) {
    for (long r = 0; r < rows; r++) {
        for (long h = 0; h < hidden; h++)
            out[r * padded + h] = exp_of(2 * std::min(std::max(x[r * hidden + h], -most), most));
        for (long h = hidden; h < padded; h++) out[r * padded + h] = 0;
    }
}

template <class T>
static void forward(const T* queries, const T* keys, const T* weights, T* scores, long slices,
                    long rows, long columns, long hidden, T most, T beyond) {
    typedef typename Vector<T>::type V;
    constexpr int N = Vector<T>::size;
    const long blocks = (columns + BLOCK - 1) / BLOCK, even = hidden + hidden % 2;
#pragma omp parallel
    {
        // Here a register holds neighbouring keys, so that no sum crosses one.
        std::vector<T> q((rows + ROWS) * even), k(BLOCK * even), turned(even * BLOCK), w(even);
        long before = -1;
#pragma omp for schedule(static)
        for (long task = 0; task < slices * blocks; task++) {
            const long slice = task / blocks, first = task % blocks * BLOCK;
            const long width = std::min<long>(BLOCK, columns - first);
            std::copy_n(weights + slice * hidden, hidden, w.data());
            T total = 0;
            for (long h = 0; h < hidden; h++) total += w[h];
            if (slice != before)
                exponentials(queries + slice * rows * hidden, q.data(), rows, hidden, even, most);
            before = slice;
            exponentials(keys + (slice * columns + first) * hidden, k.data(), width, hidden, even,
                         beyond);
            for (long h = 0; h < even; h++)
                for (long c = 0; c < width; c++) turned[h * BLOCK + c] = k[c * even + h];
            for (long r = 0; r < rows; r += ROWS) {
                T* out = scores + (slice * rows + r) * columns + first;
                for (long c = 0; c < width; c += 2 * N) {
                    V sum[ROWS][2] = {};
                    for (long h = 0; h < even; h += 2) {
                        const V *one = (const V*)&turned[h * BLOCK + c], *two = one + BLOCK / N;
                        for (int i = 0; i < ROWS; i++) {
                            const T* query = &q[(r + i) * even + h];
                            for (int j = 0; j < 2; j++) {
                                const V x = bounded<T>(1 + query[0] * one[j]);
                                const V y = bounded<T>(1 + query[1] * two[j]);
                                sum[i][j] += (w[h] * y + w[h + 1] * x) / (x * y);
                            }
                        }
                    }
                    for (int i = 0; i < ROWS && r + i < rows; i++) {
                        for (int j = 0; j < 2; j++) sum[i][j] = total - 2 * sum[i][j];
                        std::copy_n((const T*)sum[i], std::min<long>(2 * N, width - c),
                                    out + i * columns + c);
                    }
                }
            }
        }
    }
}

// Sums over columns for the queries and the weight, in as many parts as the columns are divided
// into, and over rows for the keys: Σ g (r − r²), Σ g r.
template <class T>
static void backward(const T* queries, const T* keys, const T* upstream, T* of_queries, T* of_keys,
                     T* of_weights, long slices, long rows, long columns, long hidden, long parts,
                     T most, T beyond) {
    typedef typename Vector<T>::type V;
    constexpr int N = Vector<T>::size;
    const long padded = (hidden + N * GROUP - 1) / (N * GROUP) * (N * GROUP);
    const long share = (columns + parts - 1) / parts;
#pragma omp parallel
    {
        std::vector<T> q((rows + PAIR) * padded), k(BLOCK * padded), of_k(BLOCK * padded);
        std::vector<T> zeros(BLOCK), of_q((rows + PAIR) * padded), of_w(padded);
#pragma omp for schedule(static)
        for (long task = 0; task < slices * parts; task++) {
            const long slice = task % slices, from = task / slices * share;
            const long to = std::min(columns, from + share);
            exponentials(queries + slice * rows * hidden, q.data(), rows, hidden, padded, most);
            std::fill(of_q.begin(), of_q.end(), T(0));
            std::fill(of_w.begin(), of_w.end(), T(0));
            for (long first = from; first < to; first += BLOCK) {
                const long width = std::min<long>(BLOCK, to - first);
                exponentials(keys + (slice * columns + first) * hidden, k.data(), width, hidden,
                             padded, beyond);
                std::fill(of_k.begin(), of_k.end(), T(0));
                for (long r = 0; r < rows; r += PAIR) {
                    const T* given = upstream + (slice * rows + r) * columns + first;
                    const T* second = r + 1 < rows ? given + columns : zeros.data();
                    for (long h = 0; h < padded; h += N * GROUP) {
                        V query[PAIR][GROUP], to_query[PAIR][GROUP], to_weight[GROUP];
                        for (int i = 0; i < GROUP; i++) {
                            for (int j = 0; j < PAIR; j++) {
                                query[j][i] = *(const V*)&q[(r + j) * padded + h + i * N];
                                to_query[j][i] = V{};
                            }
                            to_weight[i] = *(const V*)&of_w[h + i * N];
                        }
                        for (long c = 0; c < width; c++) {
                            const T g[PAIR] = {given[c], second[c]};
                            for (int i = 0; i < GROUP; i++) {
                                const V key = *(const V*)&k[c * padded + h + i * N];
                                V to_key = *(V*)&of_k[c * padded + h + i * N];
                                for (int j = 0; j < PAIR; j++) {
                                    const V ratio = 1 / (1 + query[j][i] * key);
                                    const V part = g[j] * ratio, slope = part - part * ratio;
                                    to_query[j][i] += slope;
                                    to_weight[i] += part;
                                    to_key += slope;
                                }
                                *(V*)&of_k[c * padded + h + i * N] = to_key;
                            }
                        }
                        for (int i = 0; i < GROUP; i++) {
                            for (int j = 0; j < PAIR; j++)
                                *(V*)&of_q[(r + j) * padded + h + i * N] += to_query[j][i];
                            *(V*)&of_w[h + i * N] = to_weight[i];
                        }
                    }
                }
                for (long c = 0; c < width; c++)
                    std::copy_n(&of_k[c * padded], hidden,
                                of_keys + (slice * columns + first + c) * hidden);
            }
            for (long r = 0; r < rows; r++)
                std::copy_n(&of_q[r * padded], hidden, of_queries + (task * rows + r) * hidden);
            std::copy_n(of_w.data(), hidden, of_weights + task * hidden);
        }
    }
}

extern "C" {
void forward_float(const float* q, const float* k, const float* w, float* s, long slices, long rows,
                   long columns, long hidden, double most, double beyond) {
    forward<float>(q, k, w, s, slices, rows, columns, hidden, most, beyond);
}
void forward_double(const double* q, const double* k, const double* w, double* s, long slices,
                    long rows, long columns, long hidden, double most, double beyond) {
    forward<double>(q, k, w, s, slices, rows, columns, hidden, most, beyond);
}
void backward_float(const float* q, const float* k, const float* g, float* dq, float* dk, float* dw,
                    long slices, long rows, long columns, long hidden, long parts, double most,
                    double beyond) {
    backward<float>(q, k, g, dq, dk, dw, slices, rows, columns, hidden, parts, most, beyond);
}
void backward_double(const double* q, const double* k, const double* g, double* dq, double* dk,
                     double* dw, long slices, long rows, long columns, long hidden, long parts,
                     double most, double beyond) {
    backward<double>(q, k, g, dq, dk, dw, slices, rows, columns, hidden, parts, most, beyond);
}
}
