// The same in each program: errors end it, and a module is parsed in a context of its own.
#include <llvm-c/Core.h>
#include <llvm-c/IRReader.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/LLJITUtils.h>
#include <llvm-c/OrcEE.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The program itself: `main.c` calls it, linked with it or through a library.
int run(void);

static void check(LLVMErrorRef error) {
  if (!error) return;
  char *message = LLVMGetErrorMessage(error);
  printf("error: %s\n", message);
  fflush(stdout);
  exit(1);
}

// Prints an error, which must be there, up to its first colon but one.
static void refused(LLVMErrorRef error) {
  if (!error) {
    printf("accepted\n");
    return;
  }
  char *message = LLVMGetErrorMessage(error);
  printf("refused: %s\n", message);
  LLVMDisposeErrorMessage(message);
}

static LLVMModuleRef parse_in(LLVMContextRef context, const char *text) {
  LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(text, strlen(text), "test");
  LLVMModuleRef module;
  char *message = NULL;
  if (LLVMParseIRInContext(context, buffer, &module, &message)) {
    printf("%s\n", message);
    exit(1);
  }
  return module;
}

static LLVMOrcThreadSafeModuleRef parse(const char *text) {
  LLVMContextRef context = LLVMContextCreate();
  LLVMModuleRef module = parse_in(context, text);
  LLVMOrcThreadSafeContextRef shared = LLVMOrcCreateNewThreadSafeContextFromLLVMContext(context);
  LLVMOrcThreadSafeModuleRef wrapped = LLVMOrcCreateNewThreadSafeModule(module, shared);
  LLVMOrcDisposeThreadSafeContext(shared);
  return wrapped;
}

static LLVMOrcLLJITRef create(void) {
  LLVMInitializeNativeTarget();
  LLVMInitializeNativeAsmPrinter();
  LLVMOrcLLJITRef jit;
  check(LLVMOrcCreateLLJIT(&jit, NULL));
  return jit;
}

static int call(LLVMOrcLLJITRef jit, const char *name) {
  LLVMOrcExecutorAddress address;
  check(LLVMOrcLLJITLookup(jit, &address, name));
  return ((int (*)(void))address)();
}

static const LLVMJITSymbolFlags exported_function = {
    LLVMJITSymbolGenericFlagsExported | LLVMJITSymbolGenericFlagsCallable, 0};

// The LLJIT of programs with units of their own.
static LLVMOrcLLJITRef jit;

static LLVMOrcSymbolStringPoolEntryRef name(const char *text) { return LLVMOrcLLJITMangleAndIntern(jit, text); }

static void resolve(LLVMOrcMaterializationResponsibilityRef responsibility, const char *symbol, int (*function)(void)) {
  LLVMOrcCSymbolMapPair pair = {name(symbol), {(LLVMOrcExecutorAddress)function, exported_function}};
  check(LLVMOrcMaterializationResponsibilityNotifyResolved(responsibility, &pair, 1));
}

static void destroy_nothing(void *data) {}
static void discard_nothing(void *data, LLVMOrcJITDylibRef dylib, LLVMOrcSymbolStringPoolEntryRef symbol) {}

// Defines a symbol by a unit of its name, which is the unit's data too.
static void define_unit(char *symbol, LLVMOrcMaterializationUnitMaterializeFunction materialize) {
  LLVMOrcCSymbolFlagsMapPair pair = {name(symbol), exported_function};
  check(LLVMOrcJITDylibDefine(LLVMOrcLLJITGetMainJITDylib(jit),
                              LLVMOrcCreateCustomMaterializationUnit(symbol, symbol, &pair, 1, NULL, materialize,
                                                                     discard_nothing, destroy_nothing)));
}
