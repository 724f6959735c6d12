#pragma once

// g++ 12 takes the "undefined" vectors inside its own AVX-512 intrinsics for an error of ours. (The first two
// lines let each compiler pass over the name that only the other one knows.)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wunknown-warning-option"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
