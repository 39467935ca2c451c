// Two threads read the same responsibility.
//
// prints: 0 short answers
// prints: 1
#include "common.h"
#include <pthread.h>

static int one(void) { return 1; }

static void *read_often(void *responsibility) {
  size_t missed = 0;
  for (int i = 0; i < 5000; ++i) {
    size_t len;
    LLVMOrcDisposeCSymbolFlagsMap(LLVMOrcMaterializationResponsibilityGetSymbols(responsibility, &len));
    missed += len != 1;
    LLVMOrcDisposeSymbols(LLVMOrcMaterializationResponsibilityGetRequestedSymbols(responsibility, &len));
    missed += len != 1;
  }
  return (void *)missed;
}

static void materialize(void *data, LLVMOrcMaterializationResponsibilityRef responsibility) {
  pthread_t threads[2];
  size_t missed = 0;
  for (int i = 0; i < 2; ++i) pthread_create(&threads[i], NULL, read_often, responsibility);
  for (int i = 0; i < 2; ++i) {
    void *of_thread;
    pthread_join(threads[i], &of_thread);
    missed += (size_t)of_thread;
  }
  printf("%zu short answers\n", missed);
  resolve(responsibility, "one", one);
  check(LLVMOrcMaterializationResponsibilityNotifyEmitted(responsibility, NULL, 0));
  LLVMOrcDisposeMaterializationResponsibility(responsibility);
}

int run(void) {
  jit = create();
  define_unit("one", materialize);
  printf("%d\n", call(jit, "one"));
  check(LLVMOrcDisposeLLJIT(jit));
  return 0;
}
