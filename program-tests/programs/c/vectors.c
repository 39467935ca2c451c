//# stdout: vector sum: 2016 4032 6048 8064
//# stdout: shuffled: 4 3 2 1
//# stdout: dot: 328350.0
//# stdout: aligned on the stack: yes
//# stdout: avx: right
//# stdout: masks: 00ff
/* Vector types, intrinsics and auto-vectorized loops, with over-aligned variables on stack and in data. */
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>

typedef int v4 __attribute__((vector_size(16)));
static __attribute__((aligned(64))) float left[100], right[100];

__attribute__((noinline)) static float dot(const float *a, const float *b, int count) {
#pragma clang fp reassociate(on)
  float total = 0;
  for (int i = 0; i < count; i++)
    total += a[i] * b[i];
  return total;
}

__attribute__((noinline, target("avx2"))) static int with_avx(void) {
  __attribute__((aligned(32))) long lanes[4];
  __m256i sum = _mm256_setzero_si256();
  for (long i = 0; i < 100; i++)
    sum = _mm256_add_epi64(sum, _mm256_set1_epi64x(i));
  _mm256_store_si256((__m256i *)lanes, sum);
  return lanes[0] == 4950 && lanes[3] == 4950;
}

int main(void) {
  v4 sum = {0}, step = {1, 2, 3, 4};
  __attribute__((aligned(64))) char local[64];
  __m128i low = _mm_set_epi64x(-1, 0);
  for (int i = 0; i < 64; i++)
    sum += step * i;
  printf("vector sum: %d %d %d %d\n", sum[0], sum[1], sum[2], sum[3]);
  v4 turned = __builtin_shufflevector(step, step, 3, 2, 1, 0);
  printf("shuffled: %d %d %d %d\n", turned[0], turned[1], turned[2], turned[3]);
  for (int i = 0; i < 100; i++)
    left[i] = (float)i, right[i] = (float)i;
  printf("dot: %.1f\n", dot(left, right, 100));
  __asm__ volatile("" : : "r"(local) : "memory");
  printf("aligned on the stack: %s\n", (uintptr_t)local % 64 == 0 && (uintptr_t)left % 64 == 0 ? "yes" : "no");
  printf("avx: %s\n", !__builtin_cpu_supports("avx2") || with_avx() ? "right" : "wrong");
  printf("masks: %04x\n", _mm_movemask_epi8(low) >> 8);
  return 0;
}
