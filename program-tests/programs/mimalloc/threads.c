//# stdout: 4 threads: 400000 blocks intact, 0 damaged
//# stdout: handed over: 40000 blocks freed by another thread
//# stdout: aligned: yes; grown: yes; zeroed: yes
/* Four threads allocate with mimalloc, check what they wrote, and free each other's blocks; a thread that ends gives its
 * heap back through a pthread key. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "mimalloc.h"

enum { THREADS = 4, ROUNDS = 100, LIVE = 1000, HANDED = 10000 };

static atomic_int intact, damaged, handed_over;
static void *mailbox[THREADS][HANDED];
static pthread_barrier_t filled;

static size_t next_size(uint32_t *state) {
  *state = *state * 1664525u + 1013904223u;
  uint32_t dice = *state >> 24;
  if (dice == 0)
    return 100000 + (*state & 0xffff);
  return dice < 32 ? 1000 + (*state & 0xfff) : 8 + (*state & 0xff);
}

static void *work(void *argument) {
  uintptr_t self = (uintptr_t)argument;
  uint32_t state = (uint32_t)self * 77777 + 1;
  unsigned char *live[LIVE];
  size_t sizes[LIVE];
  for (int round = 0; round < ROUNDS; round++) {
    for (int i = 0; i < LIVE; i++) {
      sizes[i] = next_size(&state);
      live[i] = mi_malloc(sizes[i]);
      memset(live[i], (int)(self + (uintptr_t)i), sizes[i]);
    }
    for (int i = LIVE - 1; i >= 0; i--) {
      unsigned char mark = (unsigned char)(self + (uintptr_t)i);
      int whole = live[i][0] == mark && live[i][sizes[i] / 2] == mark && live[i][sizes[i] - 1] == mark;
      atomic_fetch_add(whole ? &intact : &damaged, 1);
      mi_free(live[i]);
    }
  }
  for (int i = 0; i < HANDED; i++)
    mailbox[self][i] = mi_malloc(next_size(&state) % 200 + 1);
  pthread_barrier_wait(&filled);
  for (int i = 0; i < HANDED; i++) {
    mi_free(mailbox[(self + 1) % THREADS][i]);
    atomic_fetch_add(&handed_over, 1);
  }
  return NULL;
}

int main(void) {
  pthread_t threads[THREADS];
  char *text, *zeroes;
  int zeroed = 1;
  pthread_barrier_init(&filled, NULL, THREADS);
  for (uintptr_t i = 0; i < THREADS; i++)
    pthread_create(&threads[i], NULL, work, (void *)i);
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
  printf("4 threads: %d blocks intact, %d damaged\n", intact, damaged);
  printf("handed over: %d blocks freed by another thread\n", handed_over);
  text = mi_strdup("barley");
  text = mi_realloc(text, 1 << 20);
  zeroes = mi_zalloc(12345);
  for (int i = 0; i < 12345; i++)
    zeroed &= zeroes[i] == 0;
  printf("aligned: %s; grown: %s; zeroed: %s\n",
         (uintptr_t)mi_malloc_aligned(100, 4096) % 4096 == 0 ? "yes" : "no",
         strcmp(text, "barley") == 0 && mi_usable_size(text) >= 1 << 20 ? "yes" : "no", zeroed ? "yes" : "no");
  return 0;
}
