// One lookup of two units that need each other: each says so while the other waits for the same thread.
//
// prints: answer 2
// prints: 2 emitted
#include "common.h"

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
  define_unit("one", materialize);
  define_unit("two", materialize);
  LLVMOrcCJITDylibSearchOrderElement order = {LLVMOrcLLJITGetMainJITDylib(jit), LLVMOrcJITDylibLookupFlagsMatchAllSymbols};
  LLVMOrcCLookupSetElement set[] = {{name("one"), LLVMOrcSymbolLookupFlagsRequiredSymbol},
                                    {name("two"), LLVMOrcSymbolLookupFlagsRequiredSymbol}};
  LLVMOrcExecutionSessionLookup(LLVMOrcLLJITGetExecutionSession(jit), LLVMOrcLookupKindStatic, &order, 1, set, 2, answer, NULL);
  printf("%d emitted\n", emitted);
  check(LLVMOrcDisposeLLJIT(jit));
  return 0;
}
