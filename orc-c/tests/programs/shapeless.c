// A module that a cache cannot know by its shape: a variable of it lies in a section of its own.
#include "common.h"

int run(void) {
  const char *text = "@placed = global i32 8, section \"mine\"\n"
                     "define i32 @get() { %x = load i32, ptr @placed ret i32 %x }";
  LLVMOrcLLJITRef jit = create();
  check(LLVMOrcLLJITAddLLVMIRModule(jit, LLVMOrcLLJITGetMainJITDylib(jit), parse(text)));
  printf("%d\n", call(jit, "get"));
  check(LLVMOrcDisposeLLJIT(jit));
  return 0;
}
