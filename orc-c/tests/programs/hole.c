// A generator that was left by a jump is found out also from below a buffer that nothing has written to. A unit that was not left is not
// taken for one that was.
//
// prints: generator jumps
// prints: out of the generator
// prints: 9 from below a hole
// prints: one looks up 5
// prints: 5
#include "common.h"
#include <setjmp.h>
#include <unistd.h>

static jmp_buf back;
static int jumps = 1;

static int five(void) { return 5; }
static int nine(void) { return 9; }

static int below_a_hole(const char *symbol) {
  volatile char hole[100000];
  hole[0] = 0;
  return call(jit, symbol) + hole[0];
}

static LLVMErrorRef generate(LLVMOrcDefinitionGeneratorRef generator, void *data, LLVMOrcLookupStateRef *state,
                             LLVMOrcLookupKind kind, LLVMOrcJITDylibRef dylib, LLVMOrcJITDylibLookupFlags flags,
                             LLVMOrcCLookupSet set, size_t len) {
  if (strcmp(LLVMOrcSymbolStringPoolEntryStr(set[0].Name), "nine")) return LLVMErrorSuccess;
  if (jumps) {
    jumps = 0;
    printf("generator jumps\n");
    longjmp(back, 1);
  }
  LLVMOrcRetainSymbolStringPoolEntry(set[0].Name);
  LLVMOrcCSymbolMapPair pair = {set[0].Name, {(LLVMOrcExecutorAddress)nine, exported_function}};
  return LLVMOrcJITDylibDefine(dylib, LLVMOrcAbsoluteSymbols(&pair, 1));
}

static void materialize(void *symbol, LLVMOrcMaterializationResponsibilityRef responsibility) {
  if (!strcmp(symbol, "one")) printf("one looks up %d\n", below_a_hole("two"));
  resolve(responsibility, symbol, five);
  check(LLVMOrcMaterializationResponsibilityNotifyEmitted(responsibility, NULL, 0));
  LLVMOrcDisposeMaterializationResponsibility(responsibility);
}

int run(void) {
  // A lookup that waits for ever ends the program.
  alarm(60);
  jit = create();
  LLVMOrcJITDylibAddGenerator(LLVMOrcLLJITGetMainJITDylib(jit),
                              LLVMOrcCreateCustomCAPIDefinitionGenerator(generate, NULL, NULL));
  if (!setjmp(back)) call(jit, "nine");
  else printf("out of the generator\n");
  printf("%d from below a hole\n", below_a_hole("nine"));
  define_unit("one", materialize);
  define_unit("two", materialize);
  printf("%d\n", call(jit, "one"));
  check(LLVMOrcDisposeLLJIT(jit));
  return 0;
}
