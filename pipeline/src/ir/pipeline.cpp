// LLVM's own pipelines as text. Called from `ffi.rs` alone.

#include <llvm-c/Core.h>
#include <llvm-c/TargetMachine.h>
#include <llvm/IR/PassInstrumentation.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>

using namespace llvm;

extern "C" {

// Answers the pipeline of a level from 1 to 3, and in `Cut` where it turns from simplifying functions and inlining them to what
// each function gets by itself: vectorization and what follows. `Cut` is 0 if there is no such place.
char *uruk_llvm_pipeline_text(LLVMTargetMachineRef T, unsigned Level, size_t *Cut) {
  const OptimizationLevel Levels[] = {OptimizationLevel::O0, OptimizationLevel::O1, OptimizationLevel::O2, OptimizationLevel::O3};
  PassInstrumentationCallbacks Callbacks;
  PipelineTuningOptions Tuning;
  Tuning.SLPVectorization = true;
  PassBuilder Builder(reinterpret_cast<TargetMachine *>(T), Tuning, std::nullopt, &Callbacks);
  auto text = [&](ModulePassManager Passes) {
    std::string Text;
    raw_string_ostream Stream(Text);
    Passes.printPipeline(Stream, [&](StringRef Class) {
      StringRef Name = Callbacks.getPassNameForClassName(Class);
      return Name.empty() ? Class : Name;
    });
    return Text;
  };
  std::string Whole = text(Builder.buildPerModuleDefaultPipeline(Levels[Level]));
  std::string Last = text(Builder.buildModuleOptimizationPipeline(Levels[Level], ThinOrFullLTOPhase::None));
  size_t Found = Whole.rfind("," + Last);
  *Cut = Found == std::string::npos ? 0 : Found + 1;
  return LLVMCreateMessage(Whole.c_str());
}

} // extern "C"
