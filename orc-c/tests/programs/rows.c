// Each row of the table in README.md: how ORC differs from us, or once did. Prints what happens, here and with libLLVM alone, which is compared.
// ROWS_LIBLLVM leaves out what libLLVM does not survive.
// prints: no such symbol: an error
// prints: no such symbol: 0 reports
// prints: a missing symbol: an error
// prints: a missing symbol: 1 report
// prints: a transform that fails: an error
// prints: a transform that fails: 1 report
// prints: the client fails its unit: an error
// prints: the client fails its unit: 0 reports
// prints: the address of a thread_local: an error
// prints: the address of a thread_local: 0 reports
// prints: another data layout: an error
// prints: no data layout: no error
// prints: another triple: no error
// prints: weak: flags 7
// prints: once: flags 7
// prints: strong: flags 5
// prints: common: flags 1
// prints: variable: flags 3
// prints: absolute: flags 3
// prints: destroy of null
// prints: null contexts: done
// prints: a module for a removed tracker: an error
// prints: a generator that waits for itself: an error that names the cycle
// prints: bad assembly: an error
// prints: bad assembly: 1 report
#include "common.h"

static int reports;

static void count_report(void *data, LLVMErrorRef error) {
  ++reports;
  LLVMConsumeError(error);
}

static void print_reports(const char *row) {
  printf("%s: %d report%s\n", row, reports, reports == 1 ? "" : "s");
  reports = 0;
}

static LLVMOrcJITDylibRef start(void) {
  jit = create();
  LLVMOrcExecutionSessionSetErrorReporter(LLVMOrcLLJITGetExecutionSession(jit), count_report, NULL);
  return LLVMOrcLLJITGetMainJITDylib(jit);
}

static void end(void) { check(LLVMOrcDisposeLLJIT(jit)); }

// Prints only whether there was one.
static void outcome(const char *row, LLVMErrorRef error) {
  printf("%s: %s\n", row, error ? "an error" : "no error");
  LLVMConsumeError(error);
}

static LLVMErrorRef look_up(const char *symbol) {
  LLVMOrcExecutorAddress address;
  return LLVMOrcLLJITLookup(jit, &address, symbol);
}

static LLVMErrorRef add(const char *text) {
  return LLVMOrcLLJITAddLLVMIRModule(jit, LLVMOrcLLJITGetMainJITDylib(jit), parse(text));
}

static LLVMErrorRef fail(void *data, LLVMOrcThreadSafeModuleRef *module, LLVMOrcMaterializationResponsibilityRef duty) {
  return LLVMCreateStringError("the transform fails");
}

static void failures_are_reported(void) {
  start();
  outcome("no such symbol", look_up("nowhere"));
  print_reports("no such symbol");
  check(add("declare i32 @missing() define i32 @needs() { %a = call i32 @missing() ret i32 %a }"));
  outcome("a missing symbol", look_up("needs"));
  print_reports("a missing symbol");
  end();
}

// A generator that waits for what it would make itself. libLLVM waits for ever.
static LLVMErrorRef waits_for_itself(LLVMOrcDefinitionGeneratorRef generator, void *data, LLVMOrcLookupStateRef *state,
                                     LLVMOrcLookupKind kind, LLVMOrcJITDylibRef dylib, LLVMOrcJITDylibLookupFlags flags,
                                     LLVMOrcCLookupSet symbols, size_t count) {
  return look_up("made_by_it");
}

static void cycles_of_generators(void) {
  LLVMOrcJITDylibRef dylib = start();
  LLVMOrcJITDylibAddGenerator(dylib, LLVMOrcCreateCustomCAPIDefinitionGenerator(waits_for_itself, NULL, NULL));
  LLVMErrorRef error = look_up("made_by_it");
  char *message = LLVMGetErrorMessage(error);
  const char *cycle = strstr(message, "would never end: generator");
  printf("a generator that waits for itself: an error%s\n", cycle ? " that names the cycle" : "");
  LLVMDisposeErrorMessage(message);
  end();
}

// libLLVM prints the error of the assembler, and exits.
static void bad_assembly(void) {
  start();
  check(add("define i32 @bad() { call void asm sideeffect \"not an instruction\", \"\"() ret i32 1 }"));
  outcome("bad assembly", look_up("bad"));
  print_reports("bad assembly");
  end();
}

static void failures_of_transforms(void) {
  start();
  LLVMOrcIRTransformLayerSetTransform(LLVMOrcLLJITGetIRTransformLayer(jit), fail, NULL);
  check(add("define i32 @transformed() { ret i32 1 }"));
  outcome("a transform that fails", look_up("transformed"));
  print_reports("a transform that fails");
  end();
}

static void fail_unit(void *data, LLVMOrcMaterializationResponsibilityRef duty) {
  LLVMOrcMaterializationResponsibilityFailMaterialization(duty);
  LLVMOrcDisposeMaterializationResponsibility(duty);
}

static void failures_of_clients(void) {
  start();
  define_unit("failed", fail_unit);
  outcome("the client fails its unit", look_up("failed"));
  print_reports("the client fails its unit");
  end();
}

static void thread_locals(void) {
  start();
  check(add("@slot = thread_local global i32 7"));
  outcome("the address of a thread_local", look_up("slot"));
  print_reports("the address of a thread_local");
  end();
}

static void layouts(void) {
  start();
  outcome("another data layout", add("target datalayout = \"e-p:32:32\" define i32 @other() { ret i32 1 }"));
  outcome("no data layout", add("target datalayout = \"\" define i32 @same() { ret i32 1 }"));
  outcome("another triple", add("target triple = \"x86_64-pc-windows-msvc\" define i32 @triple() { ret i32 1 }"));
  end();
}

static void print_flags(LLVMErrorRef error, LLVMOrcCSymbolMapPairs pairs, size_t count, void *data) {
  check(error);
  for (size_t at = 0; at != count; ++at)
    printf("%s: flags %d\n", LLVMOrcSymbolStringPoolEntryStr(pairs[at].Name), pairs[at].Sym.Flags.GenericFlags);
}

static void flags_of(LLVMOrcJITDylibRef dylib, const char *symbol) {
  LLVMOrcCJITDylibSearchOrderElement order = {dylib, LLVMOrcJITDylibLookupFlagsMatchAllSymbols};
  LLVMOrcCLookupSetElement set = {name(symbol), LLVMOrcSymbolLookupFlagsRequiredSymbol};
  LLVMOrcExecutionSessionLookup(LLVMOrcLLJITGetExecutionSession(jit), LLVMOrcLookupKindStatic, &order, 1, &set, 1,
                                print_flags, NULL);
}

static int one(void) { return 1; }

static void weak_flags(void) {
  LLVMOrcJITDylibRef dylib = start();
  check(add("define weak i32 @weak() { ret i32 1 } define linkonce_odr i32 @once() { ret i32 1 } "
            "define i32 @strong() { ret i32 1 } @common = common global i32 0 @variable = weak global i32 1"));
  const char *symbols[] = {"weak", "once", "strong", "common", "variable"};
  for (size_t at = 0; at != sizeof symbols / sizeof *symbols; ++at) flags_of(dylib, symbols[at]);
  LLVMJITSymbolFlags flags = {LLVMJITSymbolGenericFlagsExported | LLVMJITSymbolGenericFlagsWeak, 0};
  LLVMOrcCSymbolMapPair pair = {name("absolute"), {(LLVMOrcExecutorAddress)one, flags}};
  check(LLVMOrcJITDylibDefine(dylib, LLVMOrcAbsoluteSymbols(&pair, 1)));
  flags_of(dylib, "absolute");
  end();
}

static void destroy_called(void *data) { printf("destroy of %s\n", data ? "data" : "null"); }
static void never(void *data, LLVMOrcMaterializationResponsibilityRef duty) {}

static void null_contexts(void) {
  start();
  LLVMOrcCSymbolFlagsMapPair pair = {name("unit"), exported_function};
  LLVMOrcDisposeMaterializationUnit(
      LLVMOrcCreateCustomMaterializationUnit("unit", NULL, &pair, 1, NULL, never, discard_nothing, destroy_called));
  LLVMOrcDisposeDefinitionGenerator(LLVMOrcCreateCustomCAPIDefinitionGenerator(NULL, NULL, destroy_called));
  printf("null contexts: done\n");
  end();
}

static void removed_trackers(void) {
  LLVMOrcJITDylibRef dylib = start();
  LLVMOrcResourceTrackerRef tracker = LLVMOrcJITDylibCreateResourceTracker(dylib);
  check(LLVMOrcResourceTrackerRemove(tracker));
  outcome("a module for a removed tracker",
          LLVMOrcLLJITAddLLVMIRModuleWithRT(jit, tracker, parse("define i32 @removed() { ret i32 1 }")));
  LLVMOrcReleaseResourceTracker(tracker);
  end();
}

int run(void) {
  setvbuf(stdout, NULL, _IONBF, 0);
  LLVMInitializeNativeTarget();
  LLVMInitializeNativeAsmParser();
  failures_are_reported();
  failures_of_transforms();
  failures_of_clients();
  thread_locals();
  layouts();
  weak_flags();
  null_contexts();
  if (getenv("ROWS_LIBLLVM")) return 0;
  removed_trackers();
  cycles_of_generators();
  bad_assembly();
  return 0;
}
