// A transform that is set after a module was added by its shape says that it is not for that one, and serves the next.
#include "common.h"

static LLVMErrorRef transform(void *data, LLVMOrcThreadSafeModuleRef *module, LLVMOrcMaterializationResponsibilityRef responsibility) {
  printf("transform\n");
  return LLVMErrorSuccess;
}

static void add(LLVMOrcLLJITRef jit, const char *text) {
  check(LLVMOrcLLJITAddLLVMIRModule(jit, LLVMOrcLLJITGetMainJITDylib(jit), parse(text)));
}

int run(void) {
  LLVMOrcLLJITRef jit = create();
  add(jit, "define i32 @one() { ret i32 1 }");
  LLVMOrcIRTransformLayerSetTransform(LLVMOrcLLJITGetIRTransformLayer(jit), transform, NULL);
  add(jit, "define i32 @two() { ret i32 2 }");
  printf("%d\n", call(jit, "one"));
  printf("%d\n", call(jit, "two"));
  check(LLVMOrcDisposeLLJIT(jit));
  return 0;
}
