// Transforms of modules and objects, objects of the client, archives, lazy functions, dumps.
//
// prints: module with 1 symbols
// prints: object dumped
// prints: changed to 2
// prints: 5 from an object
// prints: 6 by an address below 2 GiB
// prints: 5 from an archive
// prints: stub, not compiled
// prints: module with 1 symbols
// prints: lazy 6, then 6
// prints: refused: LLVMOrcLLJITLookup: `broken` (dylib `main`, unit `test`) failed: no
// prints: refused: LLVMOrcCreateLLJIT: LLVMOrcObjectLayerRef is null
#include "common.h"
#include <unistd.h>

static int asks_for_lazy;
static LLVMOrcDumpObjectsRef dump;
static int breaks;

static LLVMErrorRef rewrite(void *data, LLVMModuleRef module) {
  LLVMValueRef function = LLVMGetNamedFunction(module, "changed");
  if (LLVMGetNamedFunction(module, "lazy_body")) asks_for_lazy++;
  if (!function) return LLVMErrorSuccess;
  LLVMValueRef end = LLVMGetBasicBlockTerminator(LLVMGetEntryBasicBlock(function));
  LLVMSetOperand(end, 0, LLVMConstInt(LLVMTypeOf(LLVMGetOperand(end, 0)), 2, 0));
  return LLVMErrorSuccess;
}

static LLVMErrorRef transform(void *data, LLVMOrcThreadSafeModuleRef *module,
                              LLVMOrcMaterializationResponsibilityRef responsibility) {
  if (breaks) {
    LLVMOrcDisposeThreadSafeModule(*module);
    *module = NULL;
    return LLVMCreateStringError("no");
  }
  if (data) {
    size_t len;
    LLVMOrcDisposeCSymbolFlagsMap(LLVMOrcMaterializationResponsibilityGetSymbols(responsibility, &len));
    printf("module with %zu symbols\n", len);
  }
  return LLVMOrcThreadSafeModuleWithModuleDo(*module, rewrite, NULL);
}

static LLVMErrorRef dump_object(void *data, LLVMMemoryBufferRef *object) {
  return LLVMOrcDumpObjects_CallOperator(data, object);
}

static LLVMMemoryBufferRef compile(const char *text, LLVMRelocMode relocations) {
  LLVMContextRef context = LLVMContextCreate();
  LLVMModuleRef module = parse_in(context, text);
  char *triple = LLVMGetDefaultTargetTriple(), *message = NULL;
  LLVMTargetRef target;
  if (LLVMGetTargetFromTriple(triple, &target, &message)) exit(1);
  LLVMTargetMachineRef machine = LLVMCreateTargetMachine(target, triple, "", "", LLVMCodeGenLevelDefault, relocations,
                                                         LLVMCodeModelDefault);
  LLVMMemoryBufferRef object;
  if (LLVMTargetMachineEmitToMemoryBuffer(machine, module, LLVMObjectFile, &message, &object)) exit(1);
  LLVMDisposeMessage(triple);
  LLVMDisposeTargetMachine(machine);
  LLVMDisposeModule(module);
  LLVMContextDispose(context);
  return object;
}

static LLVMOrcObjectLayerRef with_callbacks(void *data, LLVMOrcExecutionSessionRef session, const char *triple) {
  return LLVMOrcCreateRTDyldObjectLinkingLayerWithMCJITMemoryManagerLikeCallbacks(session, NULL, NULL, NULL, NULL, NULL,
                                                                                  NULL, NULL);
}

int run(void) {
  LLVMOrcLLJITRef jit = create();
  LLVMOrcExecutionSessionRef session = LLVMOrcLLJITGetExecutionSession(jit);
  LLVMOrcJITDylibRef main = LLVMOrcLLJITGetMainJITDylib(jit);
  char directory[] = "/tmp/uruk-orc-XXXXXX", path[64];
  if (!mkdtemp(directory)) return 1;

  dump = LLVMOrcCreateDumpObjects(directory, "dumped");
  LLVMOrcIRTransformLayerSetTransform(LLVMOrcLLJITGetIRTransformLayer(jit), transform, &breaks);
  LLVMOrcObjectTransformLayerSetTransform(LLVMOrcLLJITGetObjTransformLayer(jit), dump_object, dump);
  check(LLVMOrcLLJITAddLLVMIRModule(jit, main, parse("define i32 @changed() { ret i32 1 }")));
  int changed = call(jit, "changed");
  snprintf(path, sizeof path, "%s/dumped.o", directory);
  printf("%s\n", unlink(path) ? "nothing dumped" : "object dumped");
  printf("changed to %d\n", changed);
  LLVMOrcObjectTransformLayerSetTransform(LLVMOrcLLJITGetObjTransformLayer(jit), dump_object, dump);

  LLVMMemoryBufferRef object = compile("define i32 @five() { ret i32 5 }", LLVMRelocPIC);
  check(LLVMOrcObjectLayerAddObjectFile(LLVMOrcLLJITGetObjLinkingLayer(jit), main, object));
  printf("%d from an object\n", call(jit, "five"));
  object = compile("@x = global [2 x i32] [i32 1, i32 6] @i = global i64 1 define i32 @six() { %i = load volatile i64, ptr @i "
                   "%p = getelementptr i32, ptr @x, i64 %i %v = load i32, ptr %p ret i32 %v }",
                   LLVMRelocStatic);
  check(LLVMOrcObjectLayerAddObjectFile(LLVMOrcLLJITGetObjLinkingLayer(jit), main, object));
  printf("%d by an address below 2 GiB\n", call(jit, "six"));

  object = compile("define i32 @archived() { ret i32 5 }", LLVMRelocPIC);
  snprintf(path, sizeof path, "%s/lib.a", directory);
  FILE *archive = fopen(path, "wb");
  fprintf(archive, "!<arch>\n%-16s%-12d%-6d%-6d%-8d%-10zu`\n", "archived.o/", 0, 0, 0, 644, LLVMGetBufferSize(object));
  fwrite(LLVMGetBufferStart(object), 1, LLVMGetBufferSize(object), archive);
  fclose(archive);
  LLVMDisposeMemoryBuffer(object);
  LLVMOrcDefinitionGeneratorRef members;
  check(LLVMOrcCreateStaticLibrarySearchGeneratorForPath(&members, LLVMOrcLLJITGetObjLinkingLayer(jit), path));
  LLVMOrcJITDylibAddGenerator(main, members);
  printf("%d from an archive\n", call(jit, "archived"));

  LLVMOrcJITDylibRef bodies = LLVMOrcExecutionSessionCreateBareJITDylib(session, "bodies");
  check(LLVMOrcLLJITAddLLVMIRModule(jit, bodies, parse("define i32 @lazy_body() { ret i32 6 }")));
  LLVMOrcIndirectStubsManagerRef stubs = LLVMOrcCreateLocalIndirectStubsManager(LLVMOrcLLJITGetTripleString(jit));
  LLVMOrcLazyCallThroughManagerRef manager;
  check(LLVMOrcCreateLocalLazyCallThroughManager(LLVMOrcLLJITGetTripleString(jit), session, 0, &manager));
  LLVMOrcCSymbolAliasMapPair alias = {LLVMOrcLLJITMangleAndIntern(jit, "lazy"),
                                      {LLVMOrcLLJITMangleAndIntern(jit, "lazy_body"), exported_function}};
  check(LLVMOrcJITDylibDefine(main, LLVMOrcLazyReexports(manager, stubs, bodies, &alias, 1)));
  LLVMOrcExecutorAddress lazy;
  check(LLVMOrcLLJITLookup(jit, &lazy, "lazy"));
  printf("stub, %scompiled\n", asks_for_lazy ? "" : "not ");
  int first = ((int (*)(void))lazy)();
  printf("lazy %d, then %d\n", first, asks_for_lazy == 1 ? ((int (*)(void))lazy)() : -1);

  breaks = 1;
  check(LLVMOrcLLJITAddLLVMIRModule(jit, main, parse("define i32 @broken() { ret i32 0 }")));
  LLVMOrcExecutorAddress address;
  refused(LLVMOrcLLJITLookup(jit, &address, "broken"));
  check(LLVMOrcDisposeLLJIT(jit));
  LLVMOrcDisposeLazyCallThroughManager(manager);
  LLVMOrcDisposeIndirectStubsManager(stubs);
  LLVMOrcDisposeDumpObjects(dump);

  LLVMOrcLLJITBuilderRef builder = LLVMOrcCreateLLJITBuilder();
  LLVMOrcLLJITBuilderSetObjectLinkingLayerCreator(builder, with_callbacks, NULL);
  refused(LLVMOrcCreateLLJIT(&jit, builder));
  snprintf(path, sizeof path, "rm -r %s", directory);
  return system(path);
}
