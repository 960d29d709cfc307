// Functions of the kernels in C++.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>

// f(0) … f(count − 1), in all threads.
template <class F> static void each(long count, F f) {
#pragma omp parallel for schedule(static)
    for (long i = 0; i < count; i++) f(i);
}

// Polynomials that a compiler makes vectors of; the C library's functions for double.
static inline float exp_of(float x) {
    x = std::min(std::max(x, -87.0f), 88.0f);
    float i = __builtin_rintf(x * 1.44269504f), f = x - i * 0.693359375f + i * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * f + 1.3981999507e-3f;
    p = p * f + 8.3334519073e-3f;
    p = p * f + 4.1665795894e-2f;
    p = p * f + 1.6666665459e-1f;
    p = p * f + 5.0000001201e-1f;
    p = p * f * f + f + 1.0f;
    int bits = ((int)i + 127) << 23;
    float power;
    std::memcpy(&power, &bits, 4);
    return p * power;
}
static inline float log_of(float x) {  // of a positive, normal number
    int bits;
    std::memcpy(&bits, &x, 4);
    int e = (bits - 0x3f3504f3) >> 23;  // x = 2^e m with m from 1/√2 to √2
    bits -= e << 23;
    float m;
    std::memcpy(&m, &bits, 4);
    float f = m - 1.0f, z = f * f, p = 7.0376836292e-2f;
    p = p * f - 1.1514610310e-1f;
    p = p * f + 1.1676998740e-1f;
    p = p * f - 1.2420140846e-1f;
    p = p * f + 1.4249322787e-1f;
    p = p * f - 1.6668057665e-1f;
    p = p * f + 2.0000714765e-1f;
    p = p * f - 2.4999993993e-1f;
    p = p * f + 3.3333331174e-1f;
    return f + (p * f * z - 0.5f * z + e * -2.12194440e-4f) + e * 0.693359375f;
}
static inline double exp_of(double x) { return std::exp(x); }
static inline double log_of(double x) { return std::log(x); }
