// Two threads read the same responsibility.
//
// prints: 0 short answers
// prints: 1
#include "common.h"
#include <pthread.h>

static LLVMOrcLLJITRef jit;
static LLVMOrcSymbolStringPoolEntryRef name(const char *text) { return LLVMOrcLLJITMangleAndIntern(jit, text); }
static void destroy(void *data) {}
static void discard(void *data, LLVMOrcJITDylibRef dylib, LLVMOrcSymbolStringPoolEntryRef symbol) {}

static void resolve(LLVMOrcMaterializationResponsibilityRef responsibility, const char *symbol, int (*function)(void)) {
  LLVMOrcCSymbolMapPair pair = {name(symbol), {(LLVMOrcExecutorAddress)function, exported_function}};
  check(LLVMOrcMaterializationResponsibilityNotifyResolved(responsibility, &pair, 1));
}

static void define(char *symbol, LLVMOrcMaterializationUnitMaterializeFunction materialize) {
  LLVMOrcCSymbolFlagsMapPair pair = {name(symbol), exported_function};
  check(LLVMOrcJITDylibDefine(LLVMOrcLLJITGetMainJITDylib(jit),
                              LLVMOrcCreateCustomMaterializationUnit(symbol, symbol, &pair, 1, NULL, materialize, discard,
                                                                     destroy)));
}

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
  define("one", materialize);
  printf("%d\n", call(jit, "one"));
  check(LLVMOrcDisposeLLJIT(jit));
  return 0;
}
