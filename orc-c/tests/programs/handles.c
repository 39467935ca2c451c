// Handles that are dead, foreign, null or of another kind are errors. So is use after the LLJIT has gone.
//
// prints: refused: LLVMOrcLLJITLookup: LLVMOrcLLJITRef is null
// prints: refused: LLVMOrcJITDylibDefine: LLVMOrcMaterializationUnitRef at 0x
// prints: refused: LLVMOrcJITDylibDefine: a handle of kind LLVMOrcJITDylibRef stands where LLVMOrcMaterializationUnitRef is wanted
// prints: refused: LLVMOrcResourceTrackerRemove: LLVMOrcResourceTrackerRef was disposed of, or handed over, before
// prints: refused: LLVMOrcLLJITAddLLVMIRModule: LLVMOrcThreadSafeModuleRef was disposed of, or handed over, before
// prints: no name
// prints: refused: LLVMOrcJITDylibRef is null
// prints: refused: LLVMOrcLLJITAddObjectFile: LLVMMemoryBufferRef is null
// prints: refused: LLVMOrcLLJITLookup: a string is null
// prints: refused: LLVMOrcLLJITLookup: LLVMOrcLLJITRef was disposed of, or handed over, before
// prints: refused: LLVMOrcJITDylibClear: LLVMOrcJITDylibRef was disposed of, or handed over, before
// prints: name outlives it
#include "common.h"

static void answer(LLVMErrorRef error, LLVMOrcCSymbolMapPairs found, size_t len, void *data) { refused(error); }

int run(void) {
  LLVMOrcExecutorAddress address;
  refused(LLVMOrcLLJITLookup(NULL, &address, "f"));
  LLVMOrcLLJITRef jit = create();
  LLVMOrcJITDylibRef main = LLVMOrcLLJITGetMainJITDylib(jit);
  long foreign[8] = {0};
  refused(LLVMOrcJITDylibDefine(main, (LLVMOrcMaterializationUnitRef)foreign));
  refused(LLVMOrcJITDylibDefine(main, (LLVMOrcMaterializationUnitRef)main));
  LLVMOrcResourceTrackerRef tracker = LLVMOrcJITDylibCreateResourceTracker(main);
  LLVMOrcReleaseResourceTracker(tracker);
  refused(LLVMOrcResourceTrackerRemove(tracker));
  LLVMOrcThreadSafeModuleRef module = parse("define i32 @f() { ret i32 0 }");
  check(LLVMOrcLLJITAddLLVMIRModule(jit, main, module));
  refused(LLVMOrcLLJITAddLLVMIRModule(jit, main, module));
  printf("%s\n", LLVMOrcSymbolStringPoolEntryStr((LLVMOrcSymbolStringPoolEntryRef)foreign) ? "a name" : "no name");
  LLVMOrcCJITDylibSearchOrderElement order = {NULL, LLVMOrcJITDylibLookupFlagsMatchAllSymbols};
  LLVMOrcExecutionSessionLookup(LLVMOrcLLJITGetExecutionSession(jit), LLVMOrcLookupKindStatic, &order, 1, NULL, 0, answer,
                                NULL);
  refused(LLVMOrcLLJITAddObjectFile(jit, main, NULL));
  refused(LLVMOrcLLJITLookup(jit, &address, NULL));
  LLVMOrcSymbolStringPoolEntryRef name = LLVMOrcLLJITMangleAndIntern(jit, "name outlives it");
  check(LLVMOrcDisposeLLJIT(jit));
  refused(LLVMOrcLLJITLookup(jit, &address, "f"));
  refused(LLVMOrcJITDylibClear(main));
  printf("%s\n", LLVMOrcSymbolStringPoolEntryStr(name));
  LLVMOrcReleaseSymbolStringPoolEntry(name);
  return 0;
}
