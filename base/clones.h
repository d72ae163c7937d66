// Loops that are worth a second build.
#pragma once

// Before a function: the compiler chooses the instructions; on x86-64 a second build of it uses AVX2,
// and the machine's is called.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define PACELINE_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define PACELINE_CLONES
#endif
