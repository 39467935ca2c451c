// Memory of the client's: a context for each object, destroyed with its code; refusals.
//
// prints: writes 7 to a variable of the client's memory
// prints: code of the client's memory
// prints: 2 contexts, 2 finalized, 0 destroyed, 0 ended
// prints: 2 contexts, 2 finalized, 1 destroyed, 0 ended
// prints: refused: it gave none
// prints: 3 contexts, 2 finalized, 2 destroyed, 0 ended
// prints: refused: the pages are gone
// prints: 4 contexts, 2 finalized, 3 destroyed, 0 ended
// prints: 4 contexts, 2 finalized, 4 destroyed, 1 ended
#include "common.h"
#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = 1 << 16 };

// One object's memory: code, then the rest, from pages of its own.
struct context {
  char *start, *next, *end_of_code;
};

static int contexts, finalized, destroyed, ended;
static int gives_none, refuses_to_finalize;
static char *last_start;

static void *create_context(void *data) {
  struct context *context = calloc(1, sizeof *context);
  context->start = context->next =
      mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  last_start = context->start;
  // The memory may hold anything.
  memset(context->start, 0xa5, BYTES);
  ++*(int *)data;
  return context;
}

static uint8_t *allocate(struct context *context, uintptr_t size, unsigned alignment) {
  if (gives_none) return NULL;
  // Each in pages of its own, so that protections do not meet.
  char *at = context->next;
  context->next += (size + 4095) / 4096 * 4096;
  if (alignment > 4096 || context->next > context->start + BYTES) return NULL;
  return (uint8_t *)at;
}

static uint8_t *allocate_code(void *opaque, uintptr_t size, unsigned alignment, unsigned id, const char *name) {
  struct context *context = opaque;
  uint8_t *at = allocate(context, size, alignment);
  // Where code comes first, the protection below is simple.
  if (at && (char *)at == context->start) context->end_of_code = context->next;
  return at;
}

static uint8_t *allocate_data(void *opaque, uintptr_t size, unsigned alignment, unsigned id, const char *name,
                              LLVMBool is_read_only) {
  return allocate(opaque, size, alignment);
}

static LLVMBool finalize_memory(void *opaque, char **message) {
  struct context *context = opaque;
  if (refuses_to_finalize) {
    *message = strdup("the pages are gone");
    return 1;
  }
  finalized++;
  return mprotect(context->start, context->end_of_code - context->start, PROT_READ | PROT_EXEC);
}

static void destroy_context(void *opaque) {
  struct context *context = opaque;
  munmap(context->start, BYTES);
  free(context);
  destroyed++;
}

static void end(void *data) { ended++; }

static LLVMOrcObjectLayerRef with_callbacks(void *data, LLVMOrcExecutionSessionRef session, const char *triple) {
  return LLVMOrcCreateRTDyldObjectLinkingLayerWithMCJITMemoryManagerLikeCallbacks(
      session, &contexts, create_context, end, allocate_code, allocate_data, finalize_memory, destroy_context);
}

// Looks for a symbol, which must fail with `reason`.
static void fails(const char *symbol, const char *told, const char *reason) {
  LLVMOrcExecutorAddress address;
  LLVMErrorRef error = LLVMOrcLLJITLookup(jit, &address, symbol);
  char *message = error ? LLVMGetErrorMessage(error) : NULL;
  printf("refused: %s\n", message && strstr(message, reason) ? told : message ? message : "nothing");
  if (message) LLVMDisposeErrorMessage(message);
}

static void tell(void) {
  printf("%d contexts, %d finalized, %d destroyed, %d ended\n", contexts, finalized, destroyed, ended);
}

int run(void) {
  LLVMInitializeNativeTarget();
  LLVMInitializeNativeAsmPrinter();
  LLVMOrcLLJITBuilderRef builder = LLVMOrcCreateLLJITBuilder();
  LLVMOrcLLJITBuilderSetObjectLinkingLayerCreator(builder, with_callbacks, NULL);
  check(LLVMOrcCreateLLJIT(&jit, builder));
  LLVMOrcJITDylibRef main = LLVMOrcLLJITGetMainJITDylib(jit);
  LLVMOrcResourceTrackerRef tracker = LLVMOrcJITDylibCreateResourceTracker(main);
  check(LLVMOrcLLJITAddLLVMIRModuleWithRT(
      jit, tracker, parse("@kept = global i32 0 define ptr @write() { store i32 7, ptr @kept ret ptr @kept }")));
  LLVMOrcExecutorAddress address;
  check(LLVMOrcLLJITLookup(jit, &address, "write"));
  int *kept = ((int *(*)(void))address)();
  int is_here = (char *)kept >= last_start && (char *)kept < last_start + BYTES;
  printf("writes %d to a variable of %s memory\n", *kept, is_here ? "the client's" : "other");
  check(LLVMOrcLLJITAddLLVMIRModule(jit, main, parse("define i32 @five() { ret i32 5 }")));
  check(LLVMOrcLLJITLookup(jit, &address, "five"));
  is_here = (char *)address >= last_start && (char *)address < last_start + BYTES;
  printf("code of %s memory\n", is_here && ((int (*)(void))address)() == 5 ? "the client's" : "other");
  tell();

  check(LLVMOrcResourceTrackerRemove(tracker));
  LLVMOrcReleaseResourceTracker(tracker);
  tell();

  gives_none = 1;
  check(LLVMOrcLLJITAddLLVMIRModule(jit, main, parse("define i32 @nowhere() { ret i32 5 }")));
  fails("nowhere", "it gave none", "no memory for `test`: the client gave none");
  tell();
  gives_none = 0, refuses_to_finalize = 1;
  check(LLVMOrcLLJITAddLLVMIRModule(jit, main, parse("define i32 @open() { ret i32 5 }")));
  fails("open", "the pages are gone", "the pages are gone");
  tell();

  check(LLVMOrcDisposeLLJIT(jit));
  tell();
  return 0;
}
