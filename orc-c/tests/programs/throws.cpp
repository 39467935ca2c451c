// An exception passes through code that was linked here.
//
// prints: caught 42
extern "C" {
#include "common.h"
}

static void thrower() { throw 42; }

extern "C" int run(void) {
  LLVMOrcLLJITRef jit = create();
  check(LLVMOrcLLJITAddLLVMIRModule(jit, LLVMOrcLLJITGetMainJITDylib(jit),
                                    parse("define void @pass(ptr %f) uwtable { call void %f() ret void }")));
  LLVMOrcExecutorAddress pass;
  check(LLVMOrcLLJITLookup(jit, &pass, "pass"));
  try {
    ((void (*)(void (*)()))pass)(thrower);
  } catch (int number) {
    printf("caught %d\n", number);
  }
  check(LLVMOrcDisposeLLJIT(jit));
  return 0;
}
