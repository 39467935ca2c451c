// The tasks with ORC's LLJIT in C++. LLVM's own error checks end the process, as in its examples.
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IRReader/IRReader.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/TargetSelect.h>
#include <cassert>
#include <future>
using namespace llvm;
using namespace llvm::orc;
static ExitOnError check;

static ThreadSafeModule parse(StringRef text) {
  auto context = std::make_unique<LLVMContext>();
  SMDiagnostic diagnostic;
  auto module = parseIR(MemoryBufferRef(text, "module.ll"), diagnostic, *context);
  if (!module) report_fatal_error(diagnostic.getMessage());
  return ThreadSafeModule(std::move(module), std::move(context));
}

static void hello() {
  // task: hello
  InitializeNativeTarget();
  InitializeNativeTargetAsmPrinter();
  auto jit = check(LLJITBuilder().create());
  auto context = std::make_unique<LLVMContext>();
  SMDiagnostic diagnostic;
  MemoryBufferRef text("define i64 @hello() { ret i64 42 }", "hello.ll");
  auto module = parseIR(text, diagnostic, *context);
  if (!module) report_fatal_error(diagnostic.getMessage());
  check(jit->addIRModule(ThreadSafeModule(std::move(module), std::move(context))));
  auto address = check(jit->lookup("hello"));
  assert(address.toPtr<int64_t()>()() == 42);
  // end
}

static void typed_call(LLJIT &jit) {
  // task: typed call
  auto scale = check(jit.lookup("scale")).toPtr<double(int64_t, double)>();
  assert(scale(2, 1.5) == 3.0);
  // end
}

// task: own unit
class Made : public MaterializationUnit {
  SymbolStringPtr symbol;
  LLJIT &jit;
  void discard(const JITDylib &, const SymbolStringPtr &) override {}
public:
  Made(LLJIT &jit, SymbolStringPtr name)
      : MaterializationUnit(Interface({{name, JITSymbolFlags::Exported | JITSymbolFlags::Callable}}, nullptr)),
        symbol(name), jit(jit) {}
  StringRef getName() const override { return "constant"; }
  void materialize(std::unique_ptr<MaterializationResponsibility> duty) override {
    jit.getIRCompileLayer().emit(std::move(duty), parse("define i64 @constant() { ret i64 7 }"));
  }
};
static void own_unit(LLJIT &jit) {
  check(jit.getMainJITDylib().define(std::make_unique<Made>(jit, jit.mangleAndIntern("constant"))));
  assert(check(jit.lookup("constant")).toPtr<int64_t()>()() == 7);
}
// end

static void async(LLJIT &jit) {
  // task: async
  std::promise<MSVCPExpected<ExecutorAddr>> promise;
  auto name = jit.mangleAndIntern("scale");
  jit.getExecutionSession().lookup(
      LookupKind::Static, makeJITDylibSearchOrder(&jit.getMainJITDylib()), SymbolLookupSet(name),
      SymbolState::Ready,
      [&](Expected<SymbolMap> found) {
        if (found) promise.set_value((*found)[name].getAddress());
        else promise.set_value(found.takeError());
      },
      NoDependenciesToRegister);
  assert(check(promise.get_future().get()));
  // end
}

static void unload(LLJIT &jit) {
  // task: unload
  auto tracker = jit.getMainJITDylib().createResourceTracker();
  check(jit.addIRModule(tracker, parse("define i64 @query() { ret i64 1 }")));
  assert(check(jit.lookup("query")).toPtr<int64_t()>()() == 1);
  check(tracker->remove());
  // end
}

static void plugin(LLJIT &jit) {
  // task: plugin
  auto &dylib = check(jit.createJITDylib("plugin"));
  dylib.addToLinkOrder(jit.getMainJITDylib());
  check(jit.addIRModule(dylib, parse("declare double @scale(i64, double) define double @run() { "
                                     "%x = call double @scale(i64 3, double 2.0) ret double %x }")));
  check(jit.initialize(dylib));
  assert(check(jit.lookup(dylib, "run")).toPtr<double()>()() == 6.0);
  check(jit.deinitialize(dylib));
  check(jit.getExecutionSession().removeJITDylib(dylib));
  // end
}

int main() {
  hello();
  auto jit = check(LLJITBuilder().create());
  check(jit->addIRModule(parse("define double @scale(i64 %n, double %x) { %m = sitofp i64 %n to double "
                               "%y = fmul double %m, %x ret double %y }")));
  typed_call(*jit);
  own_unit(*jit);
  async(*jit);
  unload(*jit);
  plugin(*jit);
}
