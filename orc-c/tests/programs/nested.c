// A module needs two units. Whichever comes first looks the other up, which waits for the same thread.
//
// prints: nested 5
// prints: 10
#include "common.h"

static int depth;
static int five(void) { return 5; }

static void materialize(void *data, LLVMOrcMaterializationResponsibilityRef responsibility) {
  const char *own = data, *other = strcmp(own, "one") ? "one" : "two";
  if (!depth++) printf("nested %d\n", call(jit, other));
  resolve(responsibility, own, five);
  check(LLVMOrcMaterializationResponsibilityNotifyEmitted(responsibility, NULL, 0));
  LLVMOrcDisposeMaterializationResponsibility(responsibility);
}

int run(void) {
  jit = create();
  define_unit("one", materialize);
  define_unit("two", materialize);
  check(LLVMOrcLLJITAddLLVMIRModule(jit, LLVMOrcLLJITGetMainJITDylib(jit),
                                    parse("declare i32 @one()\ndeclare i32 @two()\n"
                                          "define i32 @both() { %a = call i32 @one() %b = call i32 @two() "
                                          "%sum = add i32 %a, %b ret i32 %sum }")));
  printf("%d\n", call(jit, "both"));
  check(LLVMOrcDisposeLLJIT(jit));
  return 0;
}
