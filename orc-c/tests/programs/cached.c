// A query over a structure on the heap, named after the process. Prints the number that it is given. PASSES and THRESHOLD are for
// `LLVMRunPasses`, if it is to be called.
#include "common.h"
#include <llvm-c/Transforms/PassBuilder.h>
#include <unistd.h>

static LLVMErrorRef optimize(void *passes, LLVMModuleRef module) {
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  LLVMPassBuilderOptionsSetInlinerThreshold(options, atoi(getenv("THRESHOLD")));
  LLVMErrorRef error = LLVMRunPasses(module, passes, NULL, options);
  LLVMDisposePassBuilderOptions(options);
  return error;
}

int run(void) {
  char value[16] = {0}, text[256], name[32];
  FILE *arguments = fopen("/proc/self/cmdline", "r");
  char line[4096];
  size_t len = fread(line, 1, sizeof line - 1, arguments);
  fclose(arguments);
  line[len] = 0;
  snprintf(value, sizeof value, "%s", line + strlen(line) + 1);
  int *row = malloc(sizeof *row);
  *row = atoi(value);
  snprintf(name, sizeof name, "query_%d", (int)getpid());
  snprintf(text, sizeof text, "define i32 @%s() { %%x = load i32, ptr inttoptr (i64 %zu to ptr) ret i32 %%x }", name,
           (size_t)row);
  LLVMOrcLLJITRef jit = create();
  LLVMOrcThreadSafeModuleRef module = parse(text);
  if (getenv("PASSES")) check(LLVMOrcThreadSafeModuleWithModuleDo(module, optimize, getenv("PASSES")));
  check(LLVMOrcLLJITAddLLVMIRModule(jit, LLVMOrcLLJITGetMainJITDylib(jit), module));
  printf("%d\n", call(jit, name));
  check(LLVMOrcDisposeLLJIT(jit));
  free(row);
  return 0;
}
