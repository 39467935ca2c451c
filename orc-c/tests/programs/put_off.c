// Passes that may wait until the module is added, and all that may happen to the module before. Each function of the modules says whether
// its passes ran: the inliner takes `helper` only with a threshold, and then its argument is constant.
//
// With `URUK_ORC_DEFER=1` it prints these lines, and without it `run` in place of `put off`.
//
// prints: added: put off, 1
// prints: with a machine: put off, 1
// prints: without a threshold: put off, 0
// prints: with another option: run, 1
// prints: after those were disposed of: put off, 0
// prints: that print: run, 1
// prints: that draw: run, 1
// prints: that hide names: run, 1
// prints: refused: unknown pass name 'nonsense'
// prints: refused: unknown pass name 'nonsense'
// prints: twice: put off, run, 1
// prints: on a function: put off, run, 1
// prints: copied: put off, 1
// prints: linked: run, 1
// prints: linked into one that waits too: run, 1
// prints: disposed of, and the next: put off, 0
// prints: verified: put off, 1
// prints: written and read: put off, 1
// prints: emitted: put off, optimized
// prints: looked at: put off, run, 1
// prints: optimized while looked at: put off, 1
// prints: past a transform: put off, 1
// prints: in a transform: 1
// prints: with options of the command line: run, 1
#include "common.h"
#include <llvm-c/Analysis.h>
#include <llvm-c/BitReader.h>
#include <llvm-c/BitWriter.h>
#include <llvm-c/Linker.h>
#include <llvm-c/Support.h>
#include <llvm-c/Transforms/PassBuilder.h>

static LLVMContextRef context;
static LLVMPassBuilderOptionsRef eager;

static LLVMModuleRef module(const char *name) {
  char text[8192];
  int len = snprintf(text, sizeof text, "@sink = internal global i32 0\ndeclare i1 @llvm.is.constant.i32(i32)\n"
                                        "define internal i32 @helper(i32 %%x) {\n");
  for (int i = 0; i < 90; i++) len += snprintf(text + len, sizeof text - len, "store volatile i32 1, ptr @sink\n");
  snprintf(text + len, sizeof text - len,
           "%%c = call i1 @llvm.is.constant.i32(i32 %%x) %%r = zext i1 %%c to i32 ret i32 %%r }\n"
           "define i32 @%s() { %%r = call i32 @helper(i32 1) ret i32 %%r }\n"
           "define i32 @%s_other() { %%r = call i32 @helper(i32 2) ret i32 %%r }\n",
           name, name);
  return parse_in(context, text);
}

// Whether no pass has run yet.
static const char *state(LLVMModuleRef module) {
  LLVMValueRef function = LLVMGetNamedFunction(module, "helper");
  unsigned kind = LLVMGetEnumAttributeKindForName("nounwind", 8);
  return function && !LLVMGetEnumAttributeAtIndex(function, LLVMAttributeFunctionIndex, kind) ? "put off" : "run";
}

static LLVMModuleRef optimized(const char *name) {
  LLVMModuleRef made = module(name);
  check(LLVMRunPasses(made, "default<O2>", NULL, eager));
  return made;
}

// Adds the module, and calls its function.
static int answer(LLVMModuleRef module, const char *name) {
  LLVMOrcThreadSafeContextRef shared = LLVMOrcCreateNewThreadSafeContext();
  LLVMOrcThreadSafeModuleRef wrapped = LLVMOrcCreateNewThreadSafeModule(module, shared);
  LLVMOrcDisposeThreadSafeContext(shared);
  check(LLVMOrcLLJITAddLLVMIRModule(jit, LLVMOrcLLJITGetMainJITDylib(jit), wrapped));
  return call(jit, name);
}

static void added_with(const char *title, const char *name, const char *passes, LLVMTargetMachineRef machine,
                       LLVMPassBuilderOptionsRef options) {
  LLVMModuleRef made = module(name);
  check(LLVMRunPasses(made, passes, machine, options));
  const char *before = state(made);
  printf("%s: %s, %d\n", title, before, answer(made, name));
}

static LLVMTargetMachineRef host(void) {
  char *triple = LLVMGetDefaultTargetTriple(), *cpu = LLVMGetHostCPUName(), *features = LLVMGetHostCPUFeatures(), *message;
  LLVMTargetRef target;
  if (LLVMGetTargetFromTriple(triple, &target, &message)) exit(1);
  return LLVMCreateTargetMachine(target, triple, cpu, features, LLVMCodeGenLevelDefault, LLVMRelocPIC,
                                 LLVMCodeModelDefault);
}

static void asked_for(void) {
  LLVMTargetMachineRef machine = host();
  added_with("added", "plain", "default<O2>", NULL, eager);
  added_with("with a machine", "tuned", "default<O2>", machine, eager);
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  added_with("without a threshold", "lazy", "default<O2>", NULL, options);
  LLVMPassBuilderOptionsSetInlinerThreshold(options, 512);
  LLVMPassBuilderOptionsSetVerifyEach(options, 1);
  added_with("with another option", "strict", "default<O2>", NULL, options);
  // Until new ones lie where those were, if they ever do.
  LLVMPassBuilderOptionsRef gone = options;
  LLVMDisposePassBuilderOptions(options);
  for (int i = 0; i < 1000 && (options = LLVMCreatePassBuilderOptions()) != gone; i++) {}
  added_with("after those were disposed of", "fresh", "default<O2>", NULL, options);
  LLVMDisposePassBuilderOptions(options);
  FILE *errors = freopen("/dev/null", "w", stderr);
  added_with("that print", "printed", "default<O2>,print<inline-cost>", NULL, eager);
  added_with("that draw", "drawn", "default<O2>,aa-eval", NULL, eager);
  added_with("that hide names", "hidden", "internalize<preserve-gv=hidden>,default<O2>", NULL, eager);
  fflush(errors);
  LLVMDisposeTargetMachine(machine);
  LLVMModuleRef made = module("nonsense");
  refused(LLVMRunPasses(made, "nonsense", NULL, eager));
  refused(LLVMRunPasses(made, "nonsense", NULL, eager));
  LLVMDisposeModule(made);
}

static void run_again(void) {
  LLVMTargetMachineRef machine = host();
  LLVMModuleRef made = module("twice");
  check(LLVMRunPasses(made, "default<O2>", machine, eager));
  LLVMDisposeTargetMachine(machine);
  const char *before = state(made);
  check(LLVMRunPasses(made, "globaldce", NULL, eager));
  const char *after = state(made);
  printf("twice: %s, %s, %d\n", before, after, answer(made, "twice"));
  made = optimized("one");
  before = state(made);
  check(LLVMRunPassesOnFunction(LLVMGetNamedFunction(made, "one"), "instcombine", NULL, eager));
  after = state(made);
  printf("on a function: %s, %s, %d\n", before, after, answer(made, "one"));
}

static void handed_on(void) {
  LLVMModuleRef made = optimized("copied"), copy = LLVMCloneModule(made);
  LLVMDisposeModule(made);
  const char *before = state(copy);
  printf("copied: %s, %d\n", before, answer(copy, "copied"));
  LLVMModuleRef into = parse_in(context, "define i32 @linked_too() { ret i32 0 }");
  LLVMLinkModules2(into, optimized("linked"));
  before = state(into);
  printf("linked: %s, %d\n", before, answer(into, "linked"));
  into = module("first");
  check(LLVMRunPasses(into, "cgscc(function-attrs)", NULL, eager));
  LLVMLinkModules2(into, optimized("second"));
  before = state(into);
  printf("linked into one that waits too: %s, %d\n", before, answer(into, "second"));
  LLVMModuleRef gone = optimized("gone");
  before = state(gone);
  LLVMDisposeModule(gone);
  printf("disposed of, and the next: %s, %d\n", before, answer(module("next"), "next"));
  made = optimized("verified");
  before = state(made);
  if (LLVMVerifyModule(made, LLVMReturnStatusAction, NULL)) printf("it is broken\n");
  LLVMDisposeMessage(LLVMPrintModuleToString(made));
  printf("verified: %s, %d\n", before, answer(made, "verified"));
  made = optimized("written");
  LLVMMemoryBufferRef bitcode = LLVMWriteBitcodeToMemoryBuffer(made);
  LLVMDisposeModule(made);
  LLVMParseBitcodeInContext2(context, bitcode, &made);
  LLVMDisposeMemoryBuffer(bitcode);
  before = state(made);
  printf("written and read: %s, %d\n", before, answer(made, "written"));
  made = optimized("emitted");
  before = state(made);
  LLVMTargetMachineRef machine = host();
  LLVMMemoryBufferRef assembly;
  char *message;
  if (LLVMTargetMachineEmitToMemoryBuffer(machine, made, LLVMAssemblyFile, &message, &assembly)) printf("%s\n", message);
  printf("emitted: %s, %s\n", before,
         strstr(LLVMGetBufferStart(assembly), "call") ? "as it was" : "optimized");
  LLVMDisposeMemoryBuffer(assembly);
  LLVMDisposeModule(made);
  LLVMDisposeTargetMachine(machine);
}

static const char *seen;

static LLVMErrorRef look(void *data, LLVMModuleRef module) {
  seen = state(module);
  return LLVMErrorSuccess;
}

static LLVMErrorRef optimize(void *data, LLVMModuleRef module) {
  LLVMErrorRef error = LLVMRunPasses(module, "default<O2>", NULL, eager);
  seen = state(module);
  return error;
}

static int answer_after(LLVMOrcGenericIRModuleOperationFunction operation, LLVMModuleRef module, const char *name) {
  LLVMOrcThreadSafeContextRef shared = LLVMOrcCreateNewThreadSafeContext();
  LLVMOrcThreadSafeModuleRef wrapped = LLVMOrcCreateNewThreadSafeModule(module, shared);
  LLVMOrcDisposeThreadSafeContext(shared);
  check(LLVMOrcThreadSafeModuleWithModuleDo(wrapped, operation, NULL));
  check(LLVMOrcLLJITAddLLVMIRModule(jit, LLVMOrcLLJITGetMainJITDylib(jit), wrapped));
  return call(jit, name);
}

static LLVMErrorRef transform(void *operation, LLVMOrcThreadSafeModuleRef *module,
                              LLVMOrcMaterializationResponsibilityRef responsibility) {
  return LLVMOrcThreadSafeModuleWithModuleDo(*module, *(LLVMOrcGenericIRModuleOperationFunction *)operation, NULL);
}

static void looked_at(void) {
  LLVMModuleRef made = optimized("seen");
  const char *before = state(made);
  int result = answer_after(look, made, "seen");
  printf("looked at: %s, %s, %d\n", before, seen, result);
  result = answer_after(optimize, module("inside"), "inside");
  printf("optimized while looked at: %s, %d\n", seen, result);
  check(LLVMOrcDisposeLLJIT(jit));
  jit = create();
  LLVMOrcGenericIRModuleOperationFunction operation = look;
  LLVMOrcIRTransformLayerSetTransform(LLVMOrcLLJITGetIRTransformLayer(jit), transform, &operation);
  made = optimized("transformed");
  before = state(made);
  result = answer(made, "transformed");
  printf("past a transform: %s, %d\n", strcmp(seen, "run") ? seen : before, result);
  operation = optimize;
  printf("in a transform: %d\n", answer(module("within"), "within"));
}

int run(void) {
  context = LLVMContextCreate();
  jit = create();
  eager = LLVMCreatePassBuilderOptions();
  LLVMPassBuilderOptionsSetInlinerThreshold(eager, 512);
  asked_for();
  run_again();
  handed_on();
  looked_at();
  check(LLVMOrcDisposeLLJIT(jit));
  jit = create();
  LLVMParseCommandLineOptions(1, (const char *[]){"put_off"}, NULL);
  added_with("with options of the command line", "commanded", "default<O2>", NULL, eager);
  LLVMDisposePassBuilderOptions(eager);
  check(LLVMOrcDisposeLLJIT(jit));
  LLVMContextDispose(context);
  return 0;
}
