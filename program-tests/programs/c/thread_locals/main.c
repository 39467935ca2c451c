//# stdout: main: counter 100, here 7, zero 0, text "clay", aligned yes
//# stdout: 4 threads start from the initial values: yes
//# stdout: their variables are their own: yes
//# stdout: one address per thread from both files: yes
//# stdout: main's are untouched: counter 101, here 7
//# stdout: large array: zero, then kept
//# stdout: errno is per thread: yes
/* Thread-local variables defined here and in another file, initialised and zero, local and global dynamic. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

extern __thread int counter;
extern __thread char text[8];
int bump(void);
int *counter_address(void);
static __thread int here = 7;
static __thread int zero;
static __thread __attribute__((aligned(64))) double aligned = 1.5;
static __thread int large[5000];

static atomic_int fresh, own, same_address, error_free;

static void *run(void *argument) {
  int self = (int)(intptr_t)argument;
  fresh += counter == 100 && here == 7 && zero == 0 && aligned == 1.5 && strcmp(text, "clay") == 0 && large[4999] == 0;
  same_address += &counter == counter_address();
  error_free += errno == 0;
  errno = 100 + self;
  for (int i = 0; i < 1000; i++)
    bump(), here += self, zero++, text[0] = (char)('a' + self), large[i] = self;
  own += counter == 1100 && here == 7 + 1000 * self && zero == 1000 && text[0] == 'a' + self && errno == 100 + self;
  return NULL;
}

int main(void) {
  pthread_t threads[4];
  printf("main: counter %d, here %d, zero %d, text \"%s\", aligned %s\n", counter, here, zero, text,
         (uintptr_t)&aligned % 64 == 0 ? "yes" : "no");
  bump();
  errno = 0;
  for (intptr_t i = 0; i < 4; i++)
    pthread_create(&threads[i], NULL, run, (void *)i);
  for (int i = 0; i < 4; i++)
    pthread_join(threads[i], NULL);
  printf("4 threads start from the initial values: %s\n", fresh == 4 ? "yes" : "no");
  printf("their variables are their own: %s\n", own == 4 ? "yes" : "no");
  printf("one address per thread from both files: %s\n", same_address == 4 && &counter == counter_address() ? "yes" : "no");
  printf("main's are untouched: counter %d, here %d\n", counter, here);
  printf("large array: %s, ", large[123] ? "not zero" : "zero");
  large[123] = 5;
  puts(large[123] == 5 ? "then kept" : "then lost");
  printf("errno is per thread: %s\n", error_free == 4 && errno == 0 ? "yes" : "no");
  return 0;
}
