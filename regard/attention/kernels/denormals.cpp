// Whether torch's threads compute with numbers below the smallest normal one, or with 0 in their place.
#ifdef __SSE__
#include <xmmintrin.h>

constexpr unsigned ZEROS = 0x8040;  // of results, and of operands
static thread_local unsigned before = 0, depth = 0;

extern "C" void flush(long on) {
#pragma omp parallel
    {
        if (on && !depth++) before = _mm_getcsr();
        if (on || !--depth) _mm_setcsr(on ? before | ZEROS : before);
    }
}
#else
extern "C" void flush(long) {}
#endif
