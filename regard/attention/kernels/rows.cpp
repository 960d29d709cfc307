// Normalisers of rows of scores: each row is read from the first cache until it is finished.
#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "functions.h"

// x^p of x ≥ 0, with 0^p = 0.
template <class T> static inline T power(T x, T p) {
    const T tiny = sizeof(T) == 4 ? T(1e-36) : T(1e-300);
    return x <= tiny ? T(0) : exp_of(p * log_of(std::max(x, tiny))) + (x - x);  // NaN stays
}

#define SUM _Pragma("omp simd reduction(+ : one, two)")
#define MAXIMUM _Pragma("omp simd reduction(max : highest)")

// max x and τ with Σ max(x − max x − τ, 0)^p = 1 of each row, for x = factor · scores, by Newton's
// method from −1, where the sum is convex and decreasing.
template <class T>
static void newton(const T* scores, const T* factor, const T* exponent, T* top, T* tau, long rows,
                   long columns, long most, double small) {
    each(rows, [=](long r) {
        const T* s = scores + r * columns;
        const T by = factor[r], p = exponent[r], low = -INFINITY;
        T highest = low;
        MAXIMUM for (long c = 0; c < columns; c++) highest = std::max(highest, s[c]);
        highest = highest == low ? T(0) : by * highest;
        T t = -1;
        for (long step = 0; step < most; step++) {
            T one = 0, two = 0;  // the sum, and minus its slope
            if (p == 1) {
                SUM for (long c = 0; c < columns; c++) {
                    const T x = by * s[c] - highest - t;
                    one += std::max(x, T(0));
                    two += x > 0 ? T(1) : T(0);
                }
            } else if (p == 2) {
                SUM for (long c = 0; c < columns; c++) {
                    const T x = std::max(by * s[c] - highest - t, T(0));
                    one += x * x;
                    two += 2 * x;
                }
            } else {
                SUM for (long c = 0; c < columns; c++) {
                    const T x = std::max(by * s[c] - highest - t, T(0)), lower = power(x, p - 1);
                    one += lower * x;
                    two += p * lower;
                }
            }
            const T change = two <= 0 ? T(0) : (one - 1) / two;
            t += change;
            if (!(std::abs(change) > small)) break;
        }
        top[r] = highest;
        tau[r] = t;
    });
}

// max(factor · s − max − τ, 0)^p.
template <class T>
static void raised(const T* scores, const T* factor, const T* exponent, const T* top, const T* tau,
                   T* weights, long rows, long columns) {
    each(rows, [=](long r) {
        const T *s = scores + r * columns, by = factor[r], p = exponent[r], t = tau[r], m = top[r];
        T* w = weights + r * columns;
        if (p == 1)
            for (long c = 0; c < columns; c++) w[c] = std::max(by * s[c] - m - t, T(0));
        else if (p == 2)
            for (long c = 0; c < columns; c++) {
                const T x = std::max(by * s[c] - m - t, T(0));
                w[c] = x * x;
            }
        else
            for (long c = 0; c < columns; c++)
                w[c] = power(std::max(by * s[c] - m - t, T(0)), p);
    });
}

// The gradient of the scores, u (g − Σ u g / Σ u) with u = w^(1 − 1/p), and of α = 1 + 1/p.
template <class T>
static void slopes(const T* weights, const T* upstream, const T* exponent, T* of_alpha,
                   T* of_scores, long rows, long columns) {
    each(rows, [=](long r) {
        const T *w = weights + r * columns, *g = upstream + r * columns, p = exponent[r];
        T *u = of_scores + r * columns, one = 0, two = 0;
        if (p == 1)
            for (long c = 0; c < columns; c++) u[c] = w[c] > 0 ? T(1) : T(0);
        else if (p == 2)
            for (long c = 0; c < columns; c++) u[c] = std::sqrt(w[c]);
        else
            for (long c = 0; c < columns; c++) u[c] = power(w[c], 1 - 1 / p);
        SUM for (long c = 0; c < columns; c++) {
            one += u[c];
            two += u[c] * g[c];
        }
        const T total = one, mean = total > 0 ? two / total : T(0);
        if (of_alpha) {
            T entropy = 0, mixed = 0;  // Σ −w ln w, and the same times g
            one = two = 0;
            SUM for (long c = 0; c < columns; c++) {
                const T x = power(w[c], T(1)), log = x > 0 ? log_of(x) : T(0);
                one -= x * log;
                two -= x * log * g[c];
            }
            entropy = one, mixed = two, one = two = 0;
            SUM for (long c = 0; c < columns; c++) two += w[c] * g[c];
            of_alpha[r] = (two - mean) * p * p + (mixed - mean * entropy) * p;
        }
        for (long c = 0; c < columns; c++) u[c] *= g[c] - mean;
    });
}

// The places of numbers that include the k largest of a row, without NaN, and few others. The k-th
// largest maximum of groups is a lower bound. The groups are spaced, so that a vector holds the
// maxima of several. Of numbers that are equal to the bound at most ``most`` are among them.
template <class T>
static const std::vector<long>& candidates(const T* s, long columns, long k, long most) {
    static thread_local struct {
        std::vector<long> places, equal;
        std::vector<T> maxima, sorted;
    } of_thread;
    auto &places = of_thread.places, &equal = of_thread.equal;
    auto &maxima = of_thread.maxima, &sorted = of_thread.sorted;
    const long groups = 4 * k, size = columns / groups;
    places.clear();
    equal.clear();
    if (size < 2) {
        for (long c = 0; c < columns; c++) places.push_back(c);
        return places;
    }
    maxima.assign(s, s + groups);
    T* highest = maxima.data();
    for (long i = 1; i < size; i++)
        for (long j = 0; j < groups; j++) highest[j] = std::max(highest[j], s[i * groups + j]);
    sorted = maxima;
    std::nth_element(sorted.begin(), sorted.begin() + k - 1, sorted.end(), std::greater<T>());
    const T bound = sorted[k - 1];
    const auto add = [&](long c) {
        if (s[c] > bound) places.push_back(c);
        if (s[c] == bound && (long)equal.size() < most) equal.push_back(c);
    };
    for (long j = 0; j < groups; j++)
        if (highest[j] >= bound)
            for (long c = j; c < size * groups; c += groups) add(c);
    for (long c = size * groups; c < columns; c++) add(c);
    if ((long)places.size() < k)  // the k-th largest number is the bound
        places.insert(places.end(), equal.begin(), equal.end());
    return places;
}

template <class T> static bool unknown(const T* s, long columns) {  // NaN cannot be sorted
    int found = 0;
    for (long c = 0; c < columns; c++) found |= s[c] == s[c] ? 0 : 1;
    return found;
}

// Softmax of the k largest scores of each row and those equal to the last of them.
template <class T>
static void top(const T* scores, T* weights, long rows, long columns, long k, long equal) {
    each(rows, [=](long r) {
        const T* s = scores + r * columns;
        T* w = weights + r * columns;
        if (unknown(s, columns)) {
            std::fill_n(w, columns, T(NAN));
            return;
        }
        const std::vector<long>& places = candidates(s, columns, k, columns);
        T least = -INFINITY, highest = -INFINITY, total = 0;
        long count = 0;
        for (long c : places) highest = std::max(highest, w[count++] = s[c]);
        if (k < count) {
            std::nth_element(w, w + k - 1, w + count, std::greater<T>());
            least = w[k - 1];
        }
        std::fill_n(w, columns, T(0));
        for (long c : places)
            if (s[c] >= least && s[c] > T(-INFINITY))
                total += w[c] = equal ? T(1) : exp_of(s[c] - highest);
        for (long c : places)
            if (w[c] > 0) w[c] /= total;
    });
}

// The k largest numbers of each row in descending order, and their places.
template <class T>
static void largest(const T* x, T* values, T* at, long rows, long columns, long k) {
    each(rows, [=](long r) {
        const T* s = x + r * columns;
        if (unknown(s, columns)) {
            std::fill_n(values + r * k, k, T(NAN));
            std::fill_n(at + r * k, k, T(0));
            return;
        }
        static thread_local std::vector<std::pair<T, long>> of_thread;
        auto& found = of_thread;
        found.clear();
        for (long c : candidates(s, columns, k, k)) found.emplace_back(-s[c], c);
        std::partial_sort(found.begin(), found.begin() + k, found.end());
        for (long i = 0; i < k; i++) {
            values[r * k + i] = -found[i].first;
            at[r * k + i] = T(found[i].second);
        }
    });
}

// w_j = exp(s_j − Σ_{k ≥ j} ln(1 + exp(s_k))), and its gradient.
template <class T> static void stick(const T* scores, T* weights, long rows, long columns) {
    each(rows, [=](long r) {
        const T* s = scores + r * columns;
        T *w = weights + r * columns, left = 0;
        for (long c = 0; c < columns; c++)
            w[c] = std::max(s[c], T(0)) + log_of(1 + exp_of(-std::abs(s[c])));
        for (long c = columns - 1; c >= 0; c--) {
            left += s[c] == T(-INFINITY) ? T(0) : w[c];
            w[c] = s[c] - left;
        }
        for (long c = 0; c < columns; c++) w[c] = w[c] < T(-87) ? T(0) : exp_of(w[c]);
    });
}
template <class T>
static void unstick(const T* weights, const T* upstream, const T* scores, T* of_scores, long rows,
                    long columns) {
    each(rows, [=](long r) {
        const T *w = weights + r * columns, *g = upstream + r * columns, *s = scores + r * columns;
        T *out = of_scores + r * columns, sum = 0;
        for (long c = 0; c < columns; c++) out[c] = s[c] < T(-87) ? T(0) : 1 / (1 + exp_of(-s[c]));
        for (long c = 0; c < columns; c++) {
            sum += w[c] * g[c];
            out[c] = w[c] * g[c] - out[c] * sum;
        }
    });
}

// Columns h and h + half of each row, turned by an angle of sign ±1; the rest as they are.
struct Steps {
    long text, head, row;
    long at(long t, long h, long i) const { return t * text + h * head + i * row; }
};
template <class T>
static void turn(const T* x, const T* cos, const T* sin, T* y, long texts, long heads, long rows,
                 long half, long width, Steps of_x, Steps of_y, Steps of_angles, long sign) {
    each(texts * rows, [=](long r) {
        const long t = r / rows, i = r - t * rows;
        for (long h = 0; h < heads; h++) {
            const T *from = x + of_x.at(t, h, i), *c = cos + of_angles.at(t, h, i);
            const T *second = from + half, *s = sin + of_angles.at(t, h, i), by = sign;
            T* to = y + of_y.at(t, h, i);
#pragma omp simd
            for (long j = 0; j < half; j++) {
                to[j] = from[j] * c[j] - second[j] * (by * s[j]);
                to[j + half] = second[j] * c[j] + from[j] * (by * s[j]);
            }
            for (long j = 2 * half; j < width; j++) to[j] = from[j];
        }
    });
}

#define BOTH(T)                                                                                   \
    void turn_##T(const T* x, const T* cos, const T* sin, T* y, long texts, long heads,           \
                  long rows, long half, long width, long x0, long x1, long x2, long y0, long y1,  \
                  long y2, long a0, long a1, long a2, long sign) {                                \
        turn<T>(x, cos, sin, y, texts, heads, rows, half, width, {x0, x1, x2}, {y0, y1, y2},      \
                {a0, a1, a2}, sign);                                                              \
    }                                                                                             \
    void newton_##T(const T* s, const T* f, const T* p, T* top, T* tau, long rows, long columns,  \
                    long most, double small) {                                                    \
        newton<T>(s, f, p, top, tau, rows, columns, most, small);                                 \
    }                                                                                             \
    void raised_##T(const T* s, const T* f, const T* p, const T* top, const T* tau, T* w,         \
                    long rows, long columns) {                                                    \
        raised<T>(s, f, p, top, tau, w, rows, columns);                                           \
    }                                                                                             \
    void slopes_##T(const T* w, const T* g, const T* p, T* alpha, T* out, long rows,              \
                    long columns) {                                                               \
        slopes<T>(w, g, p, alpha, out, rows, columns);                                            \
    }                                                                                             \
    void top_##T(const T* s, T* w, long rows, long columns, long k, long equal) {                 \
        top<T>(s, w, rows, columns, k, equal);                                                    \
    }                                                                                             \
    void largest_##T(const T* s, T* values, T* at, long rows, long columns, long k) {             \
        largest<T>(s, values, at, rows, columns, k);                                              \
    }                                                                                             \
    void stick_##T(const T* s, T* w, long rows, long columns) { stick<T>(s, w, rows, columns); }  \
    void unstick_##T(const T* w, const T* g, const T* s, T* out, long rows, long columns) {       \
        unstick<T>(w, g, s, out, rows, columns);                                                  \
    }
extern "C" {
BOTH(float)
BOTH(double)
}
