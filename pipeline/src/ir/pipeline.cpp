// LLVM's own pipelines as text, and runs of a text in which passes of the host stand between LLVM's. Called from `ffi.rs` alone.

#include <chrono>
#include <llvm-c/Core.h>
#include <llvm-c/TargetMachine.h>
#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/StringSwitch.h>
#include <llvm/Analysis/InlineAdvisor.h>
#include <llvm/Analysis/ReplayInlineAdvisor.h>
#include <llvm/IR/PassInstrumentation.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Passes/StandardInstrumentations.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Transforms/IPO/AlwaysInliner.h>
#include <llvm/Transforms/Scalar/LoopPassManager.h>
#include <llvm/Transforms/Scalar/LoopUnrollPass.h>
#include <map>

using namespace llvm;

namespace {

// `optimize.rs` has the same order.
const OptimizationLevel Levels[] = {OptimizationLevel::O0, OptimizationLevel::O1, OptimizationLevel::O2,
                                    OptimizationLevel::O3, OptimizationLevel::Os, OptimizationLevel::Oz};

// Names in a text beside LLVM's passes.
const StringRef HostName = "uruk-host<", StageName = "uruk-stage<", InlinerName = "uruk-inliner<",
                UnrollName = "uruk-loop-unroll-full<", AlwaysName = "uruk-always-inline<";

// The function is null where the host sees the whole module. Answers whether to go on.
using HostPasses = bool (*)(void *Data, uint32_t Number, LLVMValueRef Function);

struct Run {
  HostPasses Host;
  void *Data;
  // -1 for LLVM's own.
  int32_t InlinerThreshold = -1;
  bool Failed = false;
  uint32_t Stage = 0;

  PreservedAnalyses host(uint32_t Number, Function *F, PreservedAnalyses Changed) {
    if (!Failed) Failed = !Host(Data, Number, wrap(F));
    return Changed;
  }
};

// Calls the host.
struct HostPass : PassInfoMixin<HostPass> {
  Run *R;
  uint32_t Number;

  HostPass(Run *R, uint32_t Number) : R(R), Number(Number) {}
  PreservedAnalyses run(Module &, ModuleAnalysisManager &) { return R->host(Number, nullptr, PreservedAnalyses::none()); }
  PreservedAnalyses run(LazyCallGraph::SCC &C, CGSCCAnalysisManager &, LazyCallGraph &, CGSCCUpdateResult &) {
    for (LazyCallGraph::Node &N : C) R->host(Number, &N.getFunction(), {});
    return PreservedAnalyses::all();
  }
  PreservedAnalyses run(Function &F, FunctionAnalysisManager &) { return R->host(Number, &F, PreservedAnalyses::none()); }
  PreservedAnalyses run(Loop &L, LoopAnalysisManager &, LoopStandardAnalysisResults &, LPMUpdater &) {
    return R->host(Number, L.getHeader()->getParent(), getLoopPassPreservedAnalyses());
  }
  void printPipeline(raw_ostream &Stream, function_ref<StringRef(StringRef)>) { Stream << HostName << Number << '>'; }
  static bool isRequired() { return true; }
};

// Says which stage begins, for those who measure.
struct StagePass : PassInfoMixin<StagePass> {
  Run *R;
  uint32_t Stage;

  StagePass(Run *R, uint32_t Stage) : R(R), Stage(Stage) {}
  template <typename Unit, typename... More> PreservedAnalyses run(Unit &, More &&...) {
    R->Stage = Stage;
    return PreservedAnalyses::all();
  }
  static bool isRequired() { return true; }
};

// Sets how eagerly the inliner inlines, which a text does not say.
struct InlineParamsPass : PassInfoMixin<InlineParamsPass> {
  InlineParams Params;

  InlineParamsPass(OptimizationLevel Level, int32_t Threshold)
      : Params(Threshold == -1 ? getInlineParams(Level.getSpeedupLevel(), Level.getSizeLevel()) : getInlineParams(Threshold)) {}
  PreservedAnalyses run(Module &M, ModuleAnalysisManager &AM) {
    AM.getResult<InlineAdvisorAnalysis>(M).tryCreate(Params, InliningAdvisorMode::Default, {},
                                                     {ThinOrFullLTOPhase::None, InlinePass::CGSCCInliner});
    return PreservedAnalyses::all();
  }
  static bool isRequired() { return true; }
};

// The number in `prefix<number>`.
bool numberOf(StringRef Name, StringRef Prefix, uint32_t &Number) {
  return Name.consume_front(Prefix) && Name.consume_back(">") && !Name.getAsInteger(10, Number);
}

template <typename Manager> bool addOurs(Run *R, StringRef Name, Manager &Passes) {
  uint32_t Number;
  if (numberOf(Name, HostName, Number)) Passes.addPass(HostPass(R, Number));
  else if (numberOf(Name, StageName, Number)) Passes.addPass(StagePass(R, Number));
  else if constexpr (std::is_same_v<Manager, LoopPassManager>) {
    // LLVM's text does not say that more is unrolled at O3.
    if (!numberOf(Name, UnrollName, Number)) return false;
    Passes.addPass(LoopFullUnrollPass(Number));
  } else if constexpr (std::is_same_v<Manager, ModulePassManager>) {
    if (numberOf(Name, InlinerName, Number) && Number < std::size(Levels))
      Passes.addPass(InlineParamsPass(Levels[Number], R->InlinerThreshold));
    else if (numberOf(Name, AlwaysName, Number)) Passes.addPass(AlwaysInlinerPass(/*InsertLifetime=*/Number != 0));
    else return false;
  } else return false;
  return true;
}

template <typename Manager> void understandOurs(PassBuilder &Builder, Run *R) {
  Builder.registerPipelineParsingCallback([R](StringRef Name, Manager &Passes, ArrayRef<PassBuilder::PipelineElement> Inner) {
    return Inner.empty() && addOurs(R, Name, Passes);
  });
}

// As LLVM itself does where a text says `default<O2>`.
PipelineTuningOptions tuning(OptimizationLevel Level) {
  PipelineTuningOptions Tuning;
  Tuning.LoopVectorization = Tuning.SLPVectorization = Level.getSpeedupLevel() > 1 && Level != OptimizationLevel::Oz;
  return Tuning;
}

// LLVM's own but for the inliner.
PipelineTuningOptions inlining(int32_t Threshold) {
  PipelineTuningOptions Tuning;
  Tuning.InlinerThreshold = Threshold;
  return Tuning;
}

// How long each pass took in each stage.
class PassTimes {
public:
  explicit PassTimes(Run &R) : R(R) {}
  void watch(PassInstrumentationCallbacks &Callbacks) {
    Callbacks.registerBeforeNonSkippedPassCallback([this](StringRef Pass, Any) {
      if (!isContainer(Pass)) Begun.push_back(Clock::now());
    });
    auto End = [this](StringRef Pass) {
      if (isContainer(Pass) || Begun.empty()) return;
      auto &[Time, Runs] = Sums[{R.Stage, Pass.str()}];
      Time += Clock::now() - Begun.back();
      ++Runs;
      Begun.pop_back();
    };
    Callbacks.registerAfterPassCallback([End](StringRef Pass, Any, const PreservedAnalyses &) { End(Pass); });
    Callbacks.registerAfterPassInvalidatedCallback([End](StringRef Pass, const PreservedAnalyses &) { End(Pass); });
  }
  template <typename Sink> void tell(PassInstrumentationCallbacks &Callbacks, Sink To) {
    for (auto &[Pass, Sum] : Sums) {
      StringRef Name = Callbacks.getPassNameForClassName(Pass.second);
      if (Name.empty()) Name = Pass.second;
      auto Nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(Sum.first).count();
      To(Pass.first, Name, uint64_t(Nanoseconds), Sum.second);
    }
  }

private:
  using Clock = std::chrono::steady_clock;
  static bool isContainer(StringRef Pass) {
    return isSpecialPass(Pass, {"PassManager", "PassAdaptor", "AnalysisManagerProxy", "DevirtSCCRepeatedPass", "StagePass"});
  }
  Run &R;
  std::vector<Clock::time_point> Begun;
  std::map<std::pair<uint32_t, std::string>, std::pair<Clock::duration, uint64_t>> Sums;
};

// Hears of functions: how many are done, and how many more there are. `progress.rs` has the steps.
using CountFunctions = void (*)(void *Data, uint32_t Step, uint64_t Done, uint64_t More);

// Counts functions that the walk over the call graph has left, and those that were vectorized, from the first one on. The walk drops
// functions and may merge its parts: the rest counts at the end.
class FunctionCounts {
public:
  FunctionCounts(CountFunctions Count, void *Data) : Count(Count), Data(Data) {}
  void watch(Module &M, PassInstrumentationCallbacks &Callbacks) {
    Callbacks.registerAfterPassCallback([this, &M](StringRef Pass, Any Unit, const PreservedAnalyses &) {
      if (Pass == "DevirtSCCRepeatedPass") {
        if (auto *C = any_cast<const LazyCallGraph::SCC *>(&Unit))
          for (LazyCallGraph::Node &N : **C) note(Simplified, M, N.getFunction());
      } else if (Pass == "LoopVectorizePass") {
        if (auto *F = any_cast<const Function *>(&Unit)) note(Optimized, M, **F);
      }
    });
  }
  void end() {
    for (uint32_t Step : {Simplified, Optimized})
      if (More[Step]) Count(Data, Step, More[Step], 0);
  }

private:
  enum : uint32_t { Simplified = 0, Optimized = 1 };
  void note(uint32_t Step, Module &M, const Function &F) {
    if (Seen[Step].empty()) {
      More[Step] = count_if(M, [](Function &F) { return !F.isDeclaration(); });
      Count(Data, Step, 0, More[Step]);
    }
    if (Seen[Step].insert(&F).second && More[Step]) --More[Step], Count(Data, Step, 1, 0);
  }
  CountFunctions Count;
  void *Data;
  uint64_t More[2] = {};
  DenseSet<const Function *> Seen[2];
};

struct Pipeline {
  Run R;
  PassTimes Times{R};
  FunctionCounts Counts;
  PassInstrumentationCallbacks Callbacks;
  LoopAnalysisManager Loops;
  FunctionAnalysisManager Functions;
  CGSCCAnalysisManager Components;
  ModuleAnalysisManager Modules;
  std::unique_ptr<StandardInstrumentations> Standard;
  PassBuilder Builder;
  ModulePassManager Passes;

  // Noting the names of all passes takes longer than a small module; only who `IsTimed` asks for them.
  Pipeline(LLVMTargetMachineRef T, int32_t InlinerThreshold, HostPasses Host, void *Data, bool IsTimed, CountFunctions Count)
      : R{Host, Data, InlinerThreshold}, Counts(Count, Data),
        Builder(reinterpret_cast<TargetMachine *>(T), inlining(InlinerThreshold), std::nullopt, IsTimed ? &Callbacks : nullptr) {
    understandOurs<ModulePassManager>(Builder, &R);
    understandOurs<CGSCCPassManager>(Builder, &R);
    understandOurs<FunctionPassManager>(Builder, &R);
    understandOurs<LoopPassManager>(Builder, &R);
  }

  void run(Module &M, bool IsTimed, bool IsCounted) {
    // The first to be registered counts, and the builder may not know of our callbacks.
    auto Ours = [&] { return PassInstrumentationAnalysis(&Callbacks); };
    Loops.registerPass(Ours), Functions.registerPass(Ours), Components.registerPass(Ours), Modules.registerPass(Ours);
    Builder.registerLoopAnalyses(Loops);
    Builder.registerFunctionAnalyses(Functions);
    Builder.registerCGSCCAnalyses(Components);
    Builder.registerModuleAnalyses(Modules);
    Builder.crossRegisterProxies(Loops, Functions, Components, Modules);
    // Among them is the one that leaves out functions that are not to be optimized.
    Standard = std::make_unique<StandardInstrumentations>(M.getContext(), /*DebugLogging=*/false);
    Standard->registerCallbacks(Callbacks, &Modules);
    Callbacks.registerShouldRunOptionalPassCallback([this](StringRef, Any) { return !R.Failed; });
    if (IsTimed) Times.watch(Callbacks);
    if (IsCounted) Counts.watch(M, Callbacks);
    Passes.run(M, Modules);
    if (IsCounted) Counts.end();
  }
};

// Has the builder put the host's passes at LLVM's extension points, in the order that `hooks.rs` has.
void extend(PassBuilder &Builder, Run *R, uint32_t First) {
  auto at = [&](uint32_t Point) { return [=](auto &Passes, auto...) { Passes.addPass(HostPass(R, First + Point)); }; };
  Builder.registerPipelineStartEPCallback(at(0));
  Builder.registerPipelineEarlySimplificationEPCallback(at(1));
  Builder.registerPeepholeEPCallback(at(2));
  Builder.registerLateLoopOptimizationsEPCallback(at(3));
  Builder.registerLoopOptimizerEndEPCallback(at(4));
  Builder.registerScalarOptimizerLateEPCallback(at(5));
  Builder.registerCGSCCOptimizerLateEPCallback(at(6));
  Builder.registerOptimizerEarlyEPCallback(at(7));
  Builder.registerVectorizerStartEPCallback(at(8));
  Builder.registerVectorizerEndEPCallback(at(9));
  Builder.registerOptimizerLastEPCallback(at(10));
}

} // namespace

extern "C" {

// Answers the pipeline of a level. `Points`, unless 0, is the number of the first extension point: there stands the host.
// `Cut` says where the pipeline turns from simplifying functions and inlining them to what each function gets by itself:
// vectorization and what follows. It is 0 if there is no such place.
char *uruk_llvm_pipeline_text(LLVMTargetMachineRef T, uint32_t Level, uint32_t Points, size_t *Cut) {
  PassInstrumentationCallbacks Callbacks;
  PassBuilder Builder(reinterpret_cast<TargetMachine *>(T), tuning(Levels[Level]), std::nullopt, &Callbacks);
  if (Points != 0) extend(Builder, nullptr, Points);
  auto text = [&](ModulePassManager Passes) {
    std::string Text;
    raw_string_ostream Stream(Text);
    Passes.printPipeline(Stream, [&](StringRef Class) {
      StringRef Name = Callbacks.getPassNameForClassName(Class);
      return Name.empty() ? Class : Name;
    });
    return Text;
  };
  // A difference between levels that LLVM's text does not show.
  auto own = [&](std::string Text, StringRef LLVMs, StringRef Ours, unsigned Number) {
    std::string New = (Ours + std::to_string(Number) + ">").str();
    for (size_t At = 0; (At = Text.find(LLVMs, At)) != std::string::npos; At += New.size()) Text.replace(At, LLVMs.size(), New);
    return Text;
  };
  auto exact = [&](std::string Text) {
    if (Level == 0) return own(std::move(Text), "always-inline", AlwaysName, 0);
    return own(std::move(Text), "loop-unroll-full", UnrollName, Levels[Level].getSpeedupLevel());
  };
  std::string Whole = exact(text(Builder.buildPerModuleDefaultPipeline(Levels[Level])));
  if (size_t Inliner = Whole.find("cgscc(devirt<"); Inliner != std::string::npos)
    Whole.insert(Inliner, (InlinerName + std::to_string(Level) + ">,").str());
  *Cut = 0;
  if (Level != 0) {
    std::string Last = text(Builder.buildModuleOptimizationPipeline(Levels[Level], ThinOrFullLTOPhase::None));
    size_t Found = Whole.rfind("," + Last);
    if (Found != std::string::npos) *Cut = Found + 1;
  }
  return LLVMCreateMessage(Whole.c_str());
}

// Runs a pipeline over a module, or only reads its text if the module is null. Calls `Host` for what stands in it as
// `uruk-host<number>`; once that has answered `false`, nothing runs that may be left out. `Hear`, unless null, is told how
// long each pass took; `Count`, unless null, how many functions are done. A threshold of the inliner of -1 is LLVM's own. Answers a
// message if the text cannot be read.
char *uruk_llvm_run_pipeline(LLVMModuleRef M, LLVMTargetMachineRef T, const char *Text, size_t Size, int32_t InlinerThreshold,
                             HostPasses Host, void *Data,
                             void (*Hear)(void *Data, uint32_t Stage, const char *Pass, size_t Size, uint64_t Nanoseconds,
                                          uint64_t Runs),
                             CountFunctions Count) {
  // A plain pointer without an owner: if LLVM gives up, no destructor of this frame runs, and all its data stays as it is.
  auto *P = new Pipeline(T, InlinerThreshold, Host, Data, Hear != nullptr, Count);
  char *Message = nullptr;
  if (Error Failed = P->Builder.parsePassPipeline(P->Passes, StringRef(Text, Size)))
    Message = LLVMCreateMessage(toString(std::move(Failed)).c_str());
  else if (M)
    P->run(*unwrap(M), Hear != nullptr, Count != nullptr);
  if (Hear)
    P->Times.tell(P->Callbacks, [&](uint32_t Stage, StringRef Pass, uint64_t Nanoseconds, uint64_t Runs) {
      Hear(Data, Stage, Pass.data(), Pass.size(), Nanoseconds, Runs);
    });
  delete P;
  return Message;
}

} // extern "C"
