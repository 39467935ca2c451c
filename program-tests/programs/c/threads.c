//# stdout: mutex: 400000
//# stdout: atomics: 400000
//# stdout: condition: 1000 handed over in order
//# stdout: read-write lock: consistent
//# stdout: key destructors: 4
//# stdout: cancelled: cleanup ran, result canceled
//# stdout: spin and barrier: 4 rounds
//# stdout: small stack: fine
/* The thread library from compiled code: locks, conditions, keys, cancellation. */
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static pthread_key_t key;
static long locked;
static atomic_long counted;
static atomic_int destroyed, rounds, torn, cleaned;
static int slot = -1, last = -1, pair[2];

static void destroy(void *value) { destroyed += value != NULL; }
static void *count(void *unused) {
  pthread_setspecific(key, &key);
  for (int i = 0; i < 100000; i++) {
    pthread_mutex_lock(&mutex);
    locked++;
    pthread_mutex_unlock(&mutex);
    counted++;
  }
  for (int i = 0; i < 1000; i++) {
    pthread_rwlock_wrlock(&lock);
    pair[0]++, pair[1]--;
    pthread_rwlock_unlock(&lock);
    pthread_rwlock_rdlock(&lock);
    torn += pair[0] + pair[1] != 0;
    pthread_rwlock_unlock(&lock);
  }
  for (int i = 0; i < 4; i++)
    if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
      rounds++;
  return unused;
}
static void *consume(void *unused) {
  for (int i = 0; i < 1000; i++) {
    pthread_mutex_lock(&mutex);
    while (slot < 0)
      pthread_cond_wait(&changed, &mutex);
    last = slot == last + 1 ? slot : -1000;
    slot = -1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
  }
  return unused;
}
static void cleanup(void *unused) { (void)unused, cleaned++; }
static void *wait_forever(void *unused) {
  pthread_cleanup_push(cleanup, NULL);
  for (;;)
    pause();
  pthread_cleanup_pop(0);
  return unused;
}
static void *small(void *unused) { return unused; }

int main(void) {
  pthread_t threads[4], other;
  pthread_attr_t attributes;
  void *result;
  pthread_key_create(&key, destroy);
  pthread_barrier_init(&barrier, NULL, 4);
  for (int i = 0; i < 4; i++)
    pthread_create(&threads[i], NULL, count, NULL);
  for (int i = 0; i < 4; i++)
    pthread_join(threads[i], NULL);
  printf("mutex: %ld\natomics: %ld\n", locked, counted);
  pthread_create(&other, NULL, consume, NULL);
  for (int i = 0; i < 1000; i++) {
    pthread_mutex_lock(&mutex);
    while (slot >= 0)
      pthread_cond_wait(&changed, &mutex);
    slot = i;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
  }
  pthread_join(other, NULL);
  printf("condition: %d handed over in order\n", last + 1);
  printf("read-write lock: %s\n", torn ? "torn" : "consistent");
  printf("key destructors: %d\n", destroyed);
  pthread_create(&other, NULL, wait_forever, NULL);
  pthread_cancel(other);
  pthread_join(other, &result);
  printf("cancelled: cleanup %s, result %s\n", cleaned ? "ran" : "did not run", result == PTHREAD_CANCELED ? "canceled" : "?");
  printf("spin and barrier: %d rounds\n", rounds);
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN);
  printf("small stack: %s\n",
         pthread_create(&other, &attributes, small, NULL) == 0 && pthread_join(other, NULL) == 0 ? "fine" : "refused");
  return 0;
}
