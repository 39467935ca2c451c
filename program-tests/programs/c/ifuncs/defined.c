static int times;
static int fast(int x) { return x + 1; }
static int slow(int x) { return x - 1; }
static int (*choose(void))(int) {
  times++;
  __builtin_cpu_init();
  return __builtin_cpu_supports("sse2") ? fast : slow;
}
int chosen(int x) __attribute__((ifunc("choose")));
int resolved_times(void) { return times; }

__attribute__((target_clones("avx2", "sse4.2", "default"))) int sum(const int *values, int count) {
  int total = 0;
  for (int i = 0; i < count; i++)
    total += values[i];
  return total;
}
