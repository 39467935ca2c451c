// A unit looks another up, whose function jumps back into that of the first: the first lookup has its own answer.
//
// prints: back in one
// prints: one is 1
// prints: two is 2
#include "common.h"
#include <setjmp.h>

static jmp_buf back;
static int value_one(void) { return 1; }
static int value_two(void) { return 2; }

static void inner(void *data, LLVMOrcMaterializationResponsibilityRef responsibility) {
  resolve(responsibility, "two", value_two);
  check(LLVMOrcMaterializationResponsibilityNotifyEmitted(responsibility, NULL, 0));
  longjmp(back, 1);
}

static void outer(void *data, LLVMOrcMaterializationResponsibilityRef responsibility) {
  resolve(responsibility, "one", value_one);
  check(LLVMOrcMaterializationResponsibilityNotifyEmitted(responsibility, NULL, 0));
  LLVMOrcDisposeMaterializationResponsibility(responsibility);
  LLVMOrcExecutorAddress address;
  if (!setjmp(back)) LLVMOrcLLJITLookup(jit, &address, "two");
  else printf("back in one\n");
}

int run(void) {
  jit = create();
  define_unit("one", outer);
  define_unit("two", inner);
  printf("one is %d\n", call(jit, "one"));
  printf("two is %d\n", call(jit, "two"));
  check(LLVMOrcDisposeLLJIT(jit));
  return 0;
}
