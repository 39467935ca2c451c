// A generator and a unit that are left by `longjmp`: their lookup fails, and what comes next is as if it had failed before.
//
// prints: generator jumps
// prints: out of the generator
// prints: generator serves
// prints: 9 afterwards
// prints: unit jumps
// prints: out of the unit
// prints: refused: LLVMOrcLLJITLookup: `made` (dylib `main`, unit `jumper`) failed: its responsibility was dropped
// prints: generator jumps
// prints: 9 again, from deeper
// prints: suspended: 1
// prints: 8 when it goes on
#include "common.h"
#include <setjmp.h>

static jmp_buf back;
static int jumps;
static LLVMOrcLookupStateRef suspended;
static LLVMOrcJITDylibRef suspended_in;

static int nine(void) { return 9; }
static int eight(void) { return 8; }

static void define(LLVMOrcJITDylibRef dylib, LLVMOrcSymbolStringPoolEntryRef name, int (*function)(void)) {
  LLVMOrcRetainSymbolStringPoolEntry(name);
  LLVMOrcCSymbolMapPair pair = {name, {(LLVMOrcExecutorAddress)function, exported_function}};
  check(LLVMOrcJITDylibDefine(dylib, LLVMOrcAbsoluteSymbols(&pair, 1)));
}

static LLVMErrorRef generate(LLVMOrcDefinitionGeneratorRef generator, void *data, LLVMOrcLookupStateRef *state,
                             LLVMOrcLookupKind kind, LLVMOrcJITDylibRef dylib, LLVMOrcJITDylibLookupFlags flags,
                             LLVMOrcCLookupSet set, size_t len) {
  const char *name = LLVMOrcSymbolStringPoolEntryStr(set[0].Name);
  if (!strcmp(name, "later")) {
    suspended = *state;
    suspended_in = dylib;
    *state = NULL;
    return LLVMErrorSuccess;
  }
  if (strcmp(name, "nine") && strcmp(name, "ten")) return LLVMErrorSuccess;
  if (jumps) {
    jumps = 0;
    printf("generator jumps\n");
    longjmp(back, 1);
  }
  if (!strcmp(name, "nine")) printf("generator serves\n");
  define(dylib, set[0].Name, nine);
  return LLVMErrorSuccess;
}

static void jump(void *data, LLVMOrcMaterializationResponsibilityRef responsibility) {
  printf("unit jumps\n");
  longjmp(back, 1);
}

static void answer(LLVMErrorRef error, LLVMOrcCSymbolMapPairs found, size_t len, void *data) {
  check(error);
  *(int *)data = ((int (*)(void))found[0].Sym.Address)();
}

static __attribute__((noinline)) int deeper(LLVMOrcLLJITRef jit, int depth) {
  volatile char room[200];
  memset((void *)room, depth, sizeof room);
  return depth ? deeper(jit, depth - 1) + room[0] - depth : call(jit, "ten");
}

int run(void) {
  LLVMOrcLLJITRef jit = create();
  LLVMOrcJITDylibRef main = LLVMOrcLLJITGetMainJITDylib(jit);
  LLVMOrcJITDylibAddGenerator(main, LLVMOrcCreateCustomCAPIDefinitionGenerator(generate, NULL, NULL));
  jumps = 1;
  if (!setjmp(back)) call(jit, "nine");
  else printf("out of the generator\n");
  printf("%d afterwards\n", call(jit, "nine"));

  LLVMOrcCSymbolFlagsMapPair pair = {LLVMOrcLLJITMangleAndIntern(jit, "made"), exported_function};
  check(LLVMOrcJITDylibDefine(main, LLVMOrcCreateCustomMaterializationUnit("jumper", NULL, &pair, 1, NULL, jump,
                                                                           discard_nothing, destroy_nothing)));
  if (!setjmp(back)) call(jit, "made");
  else printf("out of the unit\n");
  LLVMOrcExecutorAddress address;
  refused(LLVMOrcLLJITLookup(jit, &address, "made"));
  jumps = 1;
  if (!setjmp(back)) call(jit, "ten");
  printf("%d again, from deeper\n", deeper(jit, 8));

  int later = 0;
  LLVMOrcCJITDylibSearchOrderElement order = {main, LLVMOrcJITDylibLookupFlagsMatchAllSymbols};
  LLVMOrcCLookupSetElement set = {LLVMOrcLLJITMangleAndIntern(jit, "later"), LLVMOrcSymbolLookupFlagsRequiredSymbol};
  LLVMOrcExecutionSessionLookup(LLVMOrcLLJITGetExecutionSession(jit), LLVMOrcLookupKindStatic, &order, 1, &set, 1, answer,
                                &later);
  printf("suspended: %d\n", suspended != NULL && later == 0);
  define(suspended_in, set.Name, eight);
  LLVMOrcLookupStateContinueLookup(suspended, LLVMErrorSuccess);
  printf("%d when it goes on\n", later);
  check(LLVMOrcDisposeLLJIT(jit));
  return 0;
}
