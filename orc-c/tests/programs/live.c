// Modules as PostgreSQL hands them over: optimized in place, in one context that the client keeps, with addresses of its heap in them. Their
// names, their structures' names and all addresses change with the number that the program is given. Prints what each computes.
#include "common.h"
#include <llvm-c/Transforms/PassBuilder.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/resource.h>

enum { MODULES = 24, OBJECTS = 4, FIELDS = 6, STEPS = 12 };

static uint64_t state;

static unsigned below(unsigned limit) {
  state = state * 6364136223846793005 + 1442695040888963407;
  return (unsigned)(state >> 33) % limit;
}

static char text[1 << 16];
static size_t used;

static void line(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  used += vsnprintf(text + used, sizeof text - used, format, arguments);
  va_end(arguments);
  if (used >= sizeof text) abort();
}

static int64_t host(int64_t *row, int64_t x) { return row[2] - x; }

// Far from one another, and at any word: the distance between two objects is none of a structure.
static int64_t *object(unsigned shift) { return (int64_t *)((char *)calloc(1, 16384) + 4096) + shift % 509; }

// One step of a module, over `%v0` to `%vN`.
static void step(unsigned number, int64_t *objects[]) {
  unsigned left = below(number), right = below(number);
  size_t row = (size_t)objects[below(OBJECTS)], other = (size_t)objects[below(OBJECTS)], field = row + 8 * below(FIELDS);
  switch (below(10)) {
  case 0:
    line("%%v%u = load i64, ptr inttoptr (i64 %zu to ptr), align 8\n", number, field);
    break;
  case 1:
    line("store i64 %%v%u, ptr inttoptr (i64 %zu to ptr), align 8\n", left, field);
    line("%%v%u = load i64, ptr inttoptr (i64 %zu to ptr), align 8\n", number, other + 8);
    break;
  case 2:
    line("%%v%u = call i64 @llvm.smax.i64(i64 %%v%u, i64 %%v%u)\n", number, left, right);
    break;
  case 3:
    line("%%w%u = call { i64, i1 } @llvm.sadd.with.overflow.i64(i64 %%v%u, i64 %%v%u)\n", number, left, right);
    line("%%v%u = extractvalue { i64, i1 } %%w%u, 0\n", number, number);
    break;
  case 4:
    line("%%c%u = icmp slt i64 %%v%u, %%v%u\n", number, left, right);
    line("%%p%u = select i1 %%c%u, ptr inttoptr (i64 %zu to ptr), ptr inttoptr (i64 %zu to ptr)\n", number, number, row, other);
    line("%%v%u = load i64, ptr %%p%u, align 8\n", number, number);
    break;
  case 5:
    line("call void @llvm.memset.p0.i64(ptr inttoptr (i64 %zu to ptr), i8 %u, i64 16, i1 false)\n", row + 16, below(256));
    line("%%v%u = load i64, ptr inttoptr (i64 %zu to ptr), align 8\n", number, row + 24);
    break;
  case 6:
    line("call void @llvm.memcpy.p0.p0.i64(ptr inttoptr (i64 %zu to ptr), ptr %%row, i64 8, i1 false)\n", row + 32);
    line("%%v%u = load i64, ptr inttoptr (i64 %zu to ptr), align 8\n", number, row + 32);
    break;
  case 7:
    line("%%v%u = call i64 @helper_@(ptr inttoptr (i64 %zu to ptr), i64 %%v%u)\n", number, row, left);
    break;
  case 8:
    line("%%v%u = call i64 inttoptr (i64 %zu to ptr)(ptr inttoptr (i64 %zu to ptr), i64 %%v%u)\n", number, (size_t)host, row,
         left);
    break;
  default:
    line("%%v%u = mul i64 %%v%u, %u\n", number, left, 3 + below(5));
  }
}

// The module, with `@` where its number is to be.
static void write_module(int64_t *objects[]) {
  used = 0;
  line("%%Row = type { i64, i64, i64 }\n"
       "declare i64 @llvm.smax.i64(i64, i64)\n"
       "declare { i64, i1 } @llvm.sadd.with.overflow.i64(i64, i64)\n"
       "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1 immarg)\n"
       "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1 immarg)\n"
       "@host_@ = private constant ptr inttoptr (i64 %zu to ptr)\n"
       "define available_externally i64 @unused_@() { ret i64 1 }\n"
       "define internal i64 @helper_@(ptr %%row, i64 %%x) {\n"
       "  %%field = getelementptr %%Row, ptr %%row, i32 0, i32 1\n"
       "  %%y = load i64, ptr %%field, align 8\n"
       "  %%f = load ptr, ptr @host_@\n"
       "  %%z = call i64 %%f(ptr %%row, i64 %%y)\n"
       "  %%all = sub i64 %%z, %%x\n"
       "  ret i64 %%all\n"
       "}\n"
       "define i64 @query_@(ptr %%row) {\n"
       "%%v0 = load i64, ptr %%row, align 8\n",
       (size_t)host);
  for (unsigned number = 1; number != STEPS; ++number) step(number, objects);
  line("%%sum0 = add i64 %%v0, 0\n");
  for (unsigned number = 1; number != STEPS; ++number) {
    line("%%mixed%u = mul i64 %%sum%u, 31\n", number, number - 1);
    line("%%sum%u = add i64 %%mixed%u, %%v%u\n", number, number, number);
  }
  line("ret i64 %%sum%u\n}\n", STEPS - 1);
}

static char *numbered(unsigned number) {
  char *result = malloc(2 * sizeof text), *to = result;
  for (const char *from = text; *from; ++from) {
    if (from[0] == '_' && from[1] == '@') {
      to += sprintf(to, "_%u", number);
      ++from;
    } else {
      *to++ = *from;
    }
  }
  *to = 0;
  return result;
}

static LLVMModuleRef optimized(LLVMContextRef context, const char *source) {
  LLVMModuleRef module = parse_in(context, source);
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  LLVMPassBuilderOptionsSetInlinerThreshold(options, 512);
  check(LLVMRunPasses(module, "default<O3>", NULL, options));
  LLVMDisposePassBuilderOptions(options);
  return module;
}

int run(void) {
  const char *given = getenv("LIVE_NUMBER");
  unsigned number = given ? (unsigned)atoi(given) : 0;
  LLVMOrcLLJITRef jit = create();
  // From here on no file may be written, as on a full disk. Libraries are loaded.
  if (getenv("LIVE_FULL")) {
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, 0});
  }
  LLVMContextRef context = LLVMContextCreate();
  for (unsigned which = 0; which != MODULES; ++which) {
    int64_t *objects[OBJECTS], row[3] = {which, 5, 7};
    for (unsigned at = 0; at != OBJECTS; ++at) {
      objects[at] = object(number * 7919 + which * 31 + at * 101);
      for (unsigned field = 0; field != FIELDS; ++field) objects[at][field] = 1000 * which + 10 * at + field;
    }
    state = which;
    write_module(objects);
    unsigned name = number * MODULES + which;
    char *source = numbered(name), symbol[32];
    // The module is not in the context that it is wrapped with.
    LLVMOrcThreadSafeContextRef wrap = LLVMOrcCreateNewThreadSafeContext();
    LLVMOrcThreadSafeModuleRef module = LLVMOrcCreateNewThreadSafeModule(optimized(context, source), wrap);
    check(LLVMOrcLLJITAddLLVMIRModule(jit, LLVMOrcLLJITGetMainJITDylib(jit), module));
    LLVMOrcDisposeThreadSafeContext(wrap);
    snprintf(symbol, sizeof symbol, "query_%u", name);
    LLVMOrcExecutorAddress address;
    check(LLVMOrcLLJITLookup(jit, &address, symbol));
    printf("%u: %lld\n", which, (long long)((int64_t(*)(int64_t *))address)(row));
    free(source);
  }
  check(LLVMOrcDisposeLLJIT(jit));
  LLVMContextDispose(context);
  return 0;
}
