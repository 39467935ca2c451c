// A query over a structure on the heap, named after the process. Prints the number that it is given.
#include "common.h"
#include <unistd.h>

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
  check(LLVMOrcLLJITAddLLVMIRModule(jit, LLVMOrcLLJITGetMainJITDylib(jit), parse(text)));
  printf("%d\n", call(jit, name));
  check(LLVMOrcDisposeLLJIT(jit));
  free(row);
  return 0;
}
