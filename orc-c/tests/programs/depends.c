// One lookup of two units that need each other: each says so while the other waits for the same thread.
//
// prints: answer 2
// prints: 2 emitted
#include "common.h"

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

static int emitted;
static int five(void) { return 5; }

static void materialize(void *data, LLVMOrcMaterializationResponsibilityRef responsibility) {
  const char *own = data, *other = strcmp(own, "one") ? "one" : "two";
  resolve(responsibility, own, five);
  LLVMOrcSymbolStringPoolEntryRef mine = name(own), needed = name(other);
  LLVMOrcCDependenceMapPair needs = {LLVMOrcMaterializationResponsibilityGetTargetDylib(responsibility), {&needed, 1}};
  LLVMOrcCSymbolDependenceGroup group = {{&mine, 1}, &needs, 1};
  check(LLVMOrcMaterializationResponsibilityNotifyEmitted(responsibility, &group, 1));
  LLVMOrcDisposeMaterializationResponsibility(responsibility);
  ++emitted;
}

static void answer(LLVMErrorRef error, LLVMOrcCSymbolMapPairs found, size_t len, void *data) {
  check(error);
  printf("answer %zu\n", len);
}

int run(void) {
  jit = create();
  define("one", materialize);
  define("two", materialize);
  LLVMOrcCJITDylibSearchOrderElement order = {LLVMOrcLLJITGetMainJITDylib(jit), LLVMOrcJITDylibLookupFlagsMatchAllSymbols};
  LLVMOrcCLookupSetElement set[] = {{name("one"), LLVMOrcSymbolLookupFlagsRequiredSymbol},
                                    {name("two"), LLVMOrcSymbolLookupFlagsRequiredSymbol}};
  LLVMOrcExecutionSessionLookup(LLVMOrcLLJITGetExecutionSession(jit), LLVMOrcLookupKindStatic, &order, 1, set, 2, answer, NULL);
  printf("%d emitted\n", emitted);
  check(LLVMOrcDisposeLLJIT(jit));
  return 0;
}
