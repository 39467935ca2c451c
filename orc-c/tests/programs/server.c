// As a database server uses the interface: a target machine, a layer of its own choice, a generator in C, modules in a context that
// they are not wrapped with, trackers, and names that are cleared.
//
// prints: layer for x86_64
// prints: asked for outside
// prints: 42
// prints: same entry
// prints: 43 after another module in the same context
// prints: refused: LLVMOrcLLJITLookup: not found: `query` (searched `main` with
// prints: released
#include "common.h"

static int outside(void) { return 40; }

static LLVMOrcObjectLayerRef create_layer(void *data, LLVMOrcExecutionSessionRef session, const char *triple) {
  printf("layer for %.6s\n", triple);
  return LLVMOrcCreateRTDyldObjectLinkingLayerWithSectionMemoryManagerReserveAlloc(session, 1);
}

static LLVMErrorRef generate(LLVMOrcDefinitionGeneratorRef generator, void *data, LLVMOrcLookupStateRef *state,
                             LLVMOrcLookupKind kind, LLVMOrcJITDylibRef dylib, LLVMOrcJITDylibLookupFlags flags,
                             LLVMOrcCLookupSet set, size_t len) {
  for (size_t i = 0; i < len; i++) {
    if (strcmp(LLVMOrcSymbolStringPoolEntryStr(set[i].Name), "outside")) continue;
    printf("asked for outside\n");
    LLVMOrcRetainSymbolStringPoolEntry(set[i].Name);
    LLVMOrcCSymbolMapPair pair = {set[i].Name, {(LLVMOrcExecutorAddress)&outside, exported_function}};
    LLVMOrcMaterializationUnitRef unit = LLVMOrcAbsoluteSymbols(&pair, 1);
    LLVMErrorRef error = LLVMOrcJITDylibDefine(dylib, unit);
    if (error) {
      LLVMOrcDisposeMaterializationUnit(unit);
      return error;
    }
  }
  return LLVMErrorSuccess;
}

static void report(void *data, LLVMErrorRef error) { LLVMConsumeError(error); }

int run(void) {
  LLVMInitializeNativeTarget();
  LLVMInitializeNativeAsmPrinter();
  char *triple = LLVMGetDefaultTargetTriple(), *cpu = LLVMGetHostCPUName(), *features = LLVMGetHostCPUFeatures();
  LLVMTargetRef target;
  char *message = NULL;
  if (LLVMGetTargetFromTriple(triple, &target, &message)) return 1;
  LLVMTargetMachineRef machine = LLVMCreateTargetMachine(
      target, triple, cpu, features, LLVMCodeGenLevelAggressive, LLVMRelocDefault, LLVMCodeModelJITDefault);
  LLVMOrcLLJITBuilderRef builder = LLVMOrcCreateLLJITBuilder();
  LLVMOrcLLJITBuilderSetJITTargetMachineBuilder(
      builder, LLVMOrcJITTargetMachineBuilderCreateFromTargetMachine(machine));
  LLVMOrcLLJITBuilderSetObjectLinkingLayerCreator(builder, create_layer, NULL);
  LLVMOrcLLJITRef jit;
  check(LLVMOrcCreateLLJIT(&jit, builder));
  LLVMOrcExecutionSessionRef session = LLVMOrcLLJITGetExecutionSession(jit);
  LLVMOrcExecutionSessionSetErrorReporter(session, report, NULL);
  LLVMOrcJITDylibRef main = LLVMOrcLLJITGetMainJITDylib(jit);
  LLVMOrcDefinitionGeneratorRef process;
  check(LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess(&process, LLVMOrcLLJITGetGlobalPrefix(jit), NULL, NULL));
  LLVMOrcJITDylibAddGenerator(main, process);
  LLVMOrcJITDylibAddGenerator(main, LLVMOrcCreateCustomCAPIDefinitionGenerator(generate, NULL, NULL));

  LLVMOrcThreadSafeContextRef wrapper = LLVMOrcCreateNewThreadSafeContext();
  LLVMContextRef context = LLVMContextCreate();
  LLVMModuleRef module = parse_in(
      context, "declare i32 @outside() define i32 @query() { %a = call i32 @outside() %b = add i32 %a, 2 ret i32 %b }");
  LLVMOrcResourceTrackerRef tracker = LLVMOrcJITDylibCreateResourceTracker(main);
  check(LLVMOrcLLJITAddLLVMIRModuleWithRT(jit, tracker, LLVMOrcCreateNewThreadSafeModule(module, wrapper)));
  printf("%d\n", call(jit, "query"));

  LLVMOrcSymbolStringPoolEntryRef one = LLVMOrcExecutionSessionIntern(session, "query");
  LLVMOrcSymbolStringPoolEntryRef other = LLVMOrcLLJITMangleAndIntern(jit, "query");
  printf("%s\n", one == other && !strcmp(LLVMOrcSymbolStringPoolEntryStr(one), "query") ? "same entry" : "two entries");
  LLVMOrcReleaseSymbolStringPoolEntry(one);
  LLVMOrcReleaseSymbolStringPoolEntry(other);

  module = parse_in(context, "declare i32 @query() define i32 @more() { %a = call i32 @query() %b = add i32 %a, 1 ret i32 %b }");
  LLVMOrcResourceTrackerRef second = LLVMOrcJITDylibCreateResourceTracker(main);
  check(LLVMOrcLLJITAddLLVMIRModuleWithRT(jit, second, LLVMOrcCreateNewThreadSafeModule(module, wrapper)));
  printf("%d after another module in the same context\n", call(jit, "more"));
  check(LLVMOrcResourceTrackerRemove(second));
  LLVMOrcReleaseResourceTracker(second);
  check(LLVMOrcResourceTrackerRemove(tracker));
  LLVMOrcReleaseResourceTracker(tracker);
  LLVMOrcSymbolStringPoolClearDeadEntries(LLVMOrcExecutionSessionGetSymbolStringPool(session));
  LLVMOrcExecutorAddress address;
  refused(LLVMOrcLLJITLookup(jit, &address, "query"));
  LLVMOrcDisposeThreadSafeContext(wrapper);
  LLVMContextDispose(context);
  check(LLVMOrcDisposeLLJIT(jit));
  LLVMDisposeMessage(triple);
  LLVMDisposeMessage(cpu);
  LLVMDisposeMessage(features);
  printf("released\n");
  return 0;
}
