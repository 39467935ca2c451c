// Units of the client: symbols are delegated, replaced and resolved one at a time, one unit emits a module, and others fail or are refused.
//
// prints: two of 3 wanted
// prints: split from the rest
// prints: 11 and 22
// prints: discarded weak
// prints: module of the client: 7
// prints: refused: LLVMOrcLLJITLookup: `failing` (dylib `main`) failed: the client has failed the unit
// prints: destroyed failing twice
// prints: refused: LLVMOrcJITDylibDefine: `one` of unit `twin` is already defined in dylib `main` by unit `several`
// prints: destroyed twin
// prints: 1 symbols of another dylib
// prints: destroyed strong
#include "common.h"

static int eleven(void) { return 11; }
static int twenty_two(void) { return 22; }
static int thirty_three(void) { return 33; }

static void emit(LLVMOrcMaterializationResponsibilityRef responsibility) {
  check(LLVMOrcMaterializationResponsibilityNotifyEmitted(responsibility, NULL, 0));
  LLVMOrcDisposeMaterializationResponsibility(responsibility);
}

static void destroy(void *data) { printf("destroyed %s\n", (const char *)data); }
static void discard(void *data, LLVMOrcJITDylibRef dylib, LLVMOrcSymbolStringPoolEntryRef symbol) {
  printf("discarded %s\n", LLVMOrcSymbolStringPoolEntryStr(symbol));
}

static void third(void *data, LLVMOrcMaterializationResponsibilityRef responsibility) {
  resolve(responsibility, "three", thirty_three);
  emit(responsibility);
}

static void several(void *data, LLVMOrcMaterializationResponsibilityRef responsibility) {
  size_t all, wanted;
  LLVMOrcDisposeCSymbolFlagsMap(LLVMOrcMaterializationResponsibilityGetSymbols(responsibility, &all));
  LLVMOrcSymbolStringPoolEntryRef *requested =
      LLVMOrcMaterializationResponsibilityGetRequestedSymbols(responsibility, &wanted);
  printf("%s of %zu wanted\n", wanted == 2 ? "two" : "other", all);
  LLVMOrcDisposeSymbols(requested);
  LLVMOrcMaterializationResponsibilityRef part;
  LLVMOrcSymbolStringPoolEntryRef rest = name("three");
  check(LLVMOrcMaterializationResponsibilityDelegate(responsibility, &rest, 1, &part));
  LLVMOrcCSymbolFlagsMapPair pair = {name("three"), exported_function};
  check(LLVMOrcMaterializationResponsibilityReplace(
      part, LLVMOrcCreateCustomMaterializationUnit("third", NULL, &pair, 1, NULL, third, discard, destroy)));
  LLVMOrcDisposeMaterializationResponsibility(part);
  printf("split from the rest\n");
  resolve(responsibility, "one", eleven);
  resolve(responsibility, "two", twenty_two);
  LLVMOrcSymbolStringPoolEntryRef one = name("one"), two = name("two");
  LLVMOrcCDependenceMapPair needs = {LLVMOrcMaterializationResponsibilityGetTargetDylib(responsibility), {&two, 1}};
  LLVMOrcCSymbolDependenceGroup group = {{&one, 1}, &needs, 1};
  check(LLVMOrcMaterializationResponsibilityNotifyEmitted(responsibility, &group, 1));
  LLVMOrcDisposeMaterializationResponsibility(responsibility);
}

static void module(void *data, LLVMOrcMaterializationResponsibilityRef responsibility) {
  LLVMOrcIRTransformLayerEmit(LLVMOrcLLJITGetIRTransformLayer(jit), responsibility,
                              parse("define i32 @seven() { ret i32 7 }"));
}

static void failing(void *data, LLVMOrcMaterializationResponsibilityRef responsibility) {
  LLVMOrcMaterializationResponsibilityFailMaterialization(responsibility);
  LLVMOrcDisposeMaterializationResponsibility(responsibility);
}

static LLVMOrcMaterializationUnitRef unit(const char *data, LLVMOrcMaterializationUnitMaterializeFunction function,
                                          const char *symbol, LLVMJITSymbolFlags flags) {
  LLVMOrcCSymbolFlagsMapPair pair = {name(symbol), flags};
  return LLVMOrcCreateCustomMaterializationUnit(data, (void *)data, &pair, 1, NULL, function, discard, destroy);
}

static void answer(LLVMErrorRef error, LLVMOrcCSymbolMapPairs found, size_t len, void *data) {
  check(error);
  int one = 0, two = 0;
  for (size_t i = 0; i < len; i++) {
    int value = ((int (*)(void))found[i].Sym.Address)();
    *(strcmp(LLVMOrcSymbolStringPoolEntryStr(found[i].Name), "one") ? &two : &one) = value;
  }
  printf(len == 2 ? "%d and %d\n" : "%d symbols of another dylib\n", len == 2 ? one : (int)len, two);
}

int run(void) {
  jit = create();
  LLVMOrcExecutionSessionRef session = LLVMOrcLLJITGetExecutionSession(jit);
  LLVMOrcJITDylibRef main = LLVMOrcLLJITGetMainJITDylib(jit);
  LLVMOrcCSymbolFlagsMapPair pairs[] = {
      {name("one"), exported_function}, {name("two"), exported_function}, {name("three"), exported_function}};
  check(LLVMOrcJITDylibDefine(
      main, LLVMOrcCreateCustomMaterializationUnit("several", NULL, pairs, 3, NULL, several, discard, destroy)));
  LLVMOrcCJITDylibSearchOrderElement order = {main, LLVMOrcJITDylibLookupFlagsMatchAllSymbols};
  LLVMOrcCLookupSetElement set[] = {{name("one"), LLVMOrcSymbolLookupFlagsRequiredSymbol},
                                    {name("two"), LLVMOrcSymbolLookupFlagsRequiredSymbol}};
  LLVMOrcExecutionSessionLookup(session, LLVMOrcLookupKindStatic, &order, 1, set, 2, answer, NULL);

  LLVMJITSymbolFlags weak = {exported_function.GenericFlags | LLVMJITSymbolGenericFlagsWeak, 0};
  LLVMOrcCSymbolFlagsMapPair both[] = {{name("weak"), weak}, {name("seven"), exported_function}};
  check(LLVMOrcJITDylibDefine(
      main, LLVMOrcCreateCustomMaterializationUnit("module", NULL, both, 2, NULL, module, discard, destroy)));
  check(LLVMOrcJITDylibDefine(main, unit("strong", failing, "weak", exported_function)));
  printf("module of the client: %d\n", call(jit, "seven"));

  check(LLVMOrcJITDylibDefine(main, unit("failing", failing, "failing", exported_function)));
  LLVMOrcExecutorAddress address;
  refused(LLVMOrcLLJITLookup(jit, &address, "failing"));

  LLVMOrcMaterializationUnitRef twin = unit("failing twice", failing, "failing too", exported_function);
  LLVMOrcDisposeMaterializationUnit(twin);
  twin = unit("twin", failing, "one", exported_function);
  refused(LLVMOrcJITDylibDefine(main, twin));
  LLVMOrcDisposeMaterializationUnit(twin);

  LLVMOrcJITDylibRef other;
  check(LLVMOrcExecutionSessionCreateJITDylib(session, &other, "other"));
  if (other != LLVMOrcExecutionSessionGetJITDylibByName(session, "other")) printf("two handles of one dylib\n");
  LLVMOrcCSymbolMapPair pair = {name("eleven"), {(LLVMOrcExecutorAddress)eleven, exported_function}};
  check(LLVMOrcJITDylibDefine(other, LLVMOrcAbsoluteSymbols(&pair, 1)));
  order.JD = other;
  LLVMOrcCLookupSetElement eleven_too = {name("eleven"), LLVMOrcSymbolLookupFlagsRequiredSymbol};
  LLVMOrcExecutionSessionLookup(session, LLVMOrcLookupKindDLSym, &order, 1, &eleven_too, 1, answer, NULL);
  check(LLVMOrcDisposeLLJIT(jit));
  return 0;
}
