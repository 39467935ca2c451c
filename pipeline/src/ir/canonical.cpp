// A copy of a module in a context of its own that tells nothing of the context it came from. Called from `ffi.rs` alone.
//
// Bitcode lists every kind of metadata that its context knows, and numbers them in the order in which they came up. So kinds
// that the module does not use are hidden before the copy is read, and the others get their numbers by name. Structures lose
// their names: a name that is taken in a context gets a number behind it, and nothing but text depends on them.

#include <llvm-c/Core.h>
#include <llvm/Bitcode/BitcodeReader.h>
#include <llvm/Bitcode/BitcodeWriter.h>
#include <llvm/Bitcode/LLVMBitCodes.h>
#include <llvm/Bitstream/BitstreamReader.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/Error.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/raw_ostream.h>
#include <set>

using namespace llvm;

namespace {

using Bytes = SmallVector<char, 0>;
using Kinds = SmallVector<std::pair<unsigned, MDNode *>, 8>;

// The kinds of metadata that instructions and globals of the module carry.
std::set<unsigned> usedKinds(const Module &M) {
  std::set<unsigned> Used;
  Kinds Attached;
  auto take = [&] {
    for (const auto &Attachment : Attached) Used.insert(Attachment.first);
    Attached.clear();
  };
  for (const GlobalObject &Object : M.global_objects()) Object.getAllMetadata(Attached), take();
  for (const Function &F : M)
    for (const Instruction &I : instructions(F))
      if (I.hasMetadataOtherThanDebugLoc()) I.getAllMetadataOtherThanDebugLoc(Attached), take();
  return Used;
}

// Goes to the next block `Id` at this level and enters it.
bool enterBlock(BitstreamCursor &Stream, unsigned Id) {
  while (!Stream.AtEndOfStream()) {
    Expected<BitstreamEntry> Entry = Stream.advance(BitstreamCursor::AF_DontPopBlockAtEnd);
    if (!Entry) return consumeError(Entry.takeError()), false;
    Error Failed = Error::success();
    if (Entry->Kind == BitstreamEntry::Record)
      Failed = Stream.skipRecord(Entry->ID).takeError();
    else if (Entry->Kind != BitstreamEntry::SubBlock)
      return consumeError(std::move(Failed)), false;
    else if (Entry->ID != Id)
      Failed = Stream.SkipBlock();
    else
      return !errorToBool(Stream.EnterSubBlock(Id));
    if (errorToBool(std::move(Failed))) return false;
  }
  return false;
}

// A record of a code that LLVM does not know is left out when it is read. It is as long, so nothing else moves.
void hideRecord(Bytes &Bitcode, uint64_t CodeBit) {
  const unsigned Unknown = 31; // The largest code in one chunk, and all bits of it: they are only added.
  for (unsigned Bit = 0; Bit != 5; ++Bit)
    if (Unknown >> Bit & 1) Bitcode[(CodeBit + Bit) / 8] |= char(1 << (CodeBit + Bit) % 8);
}

// Hides the kinds of metadata that are neither LLVM's own nor used.
void hideKinds(Bytes &Bitcode, const std::set<unsigned> &Used, unsigned OfLlvm) {
  std::vector<uint64_t> Hidden;
  BitstreamCursor Stream(StringRef(Bitcode.data(), Bitcode.size()));
  if (errorToBool(Stream.JumpToBit(32))) return; // Behind the magic number.
  if (!enterBlock(Stream, bitc::MODULE_BLOCK_ID) || !enterBlock(Stream, bitc::METADATA_KIND_BLOCK_ID)) return;
  SmallVector<uint64_t, 64> Record;
  for (;;) {
    Expected<BitstreamEntry> Entry = Stream.advance();
    if (!Entry || Entry->Kind != BitstreamEntry::Record) {
      if (!Entry) consumeError(Entry.takeError());
      break;
    }
    uint64_t CodeBit = Stream.GetCurrentBitNo();
    Record.clear();
    Expected<unsigned> Code = Stream.readRecord(Entry->ID, Record);
    if (!Code) return consumeError(Code.takeError());
    bool IsPlain = Entry->ID == bitc::UNABBREV_RECORD && *Code == bitc::METADATA_KIND && !Record.empty();
    if (IsPlain && Record[0] >= OfLlvm && !Used.count(unsigned(Record[0]))) Hidden.push_back(CodeBit);
  }
  for (uint64_t CodeBit : Hidden) hideRecord(Bitcode, CodeBit);
}

// Takes the names of structures away, and out of the names of intrinsics that were made of them.
void forgetStructNames(Module &M) {
  for (StructType *Type : M.getIdentifiedStructTypes()) Type->setName("");
  for (Function &F : make_early_inc_range(M))
    if (auto Renamed = F.isIntrinsic() ? Intrinsic::remangleIntrinsicFunction(&F) : std::nullopt) {
      F.replaceAllUsesWith(*Renamed);
      F.eraseFromParent();
    }
}

} // namespace

extern "C" {

// Copies the module into `Into`, which is new. Answers null with LLVM's message if that cannot be read.
LLVMModuleRef uruk_llvm_copy_canonical(LLVMModuleRef Handle, LLVMContextRef Into, char **Message) {
  const Module &M = *unwrap(Handle);
  LLVMContext &Context = *unwrap(Into);
  Bytes Bitcode;
  raw_svector_ostream Stream(Bitcode);
  WriteBitcodeToFile(M, Stream);
  SmallVector<StringRef, 64> OfLlvm, All;
  Context.getMDKindNames(OfLlvm);
  M.getContext().getMDKindNames(All);
  std::set<unsigned> Used = usedKinds(M);
  if (All.size() > OfLlvm.size()) hideKinds(Bitcode, Used, OfLlvm.size());
  std::set<std::string> ByName; // The strings of `OfLlvm` are the new context's.
  for (unsigned Kind : Used)
    if (Kind >= OfLlvm.size()) ByName.insert(All[Kind].str());
  for (const std::string &Name : ByName) Context.getMDKindID(Name);
  MemoryBufferRef Buffer(StringRef(Bitcode.data(), Bitcode.size()), M.getModuleIdentifier());
  Expected<std::unique_ptr<Module>> Copy = parseBitcodeFile(Buffer, Context);
  if (!Copy) {
    *Message = LLVMCreateMessage(toString(Copy.takeError()).c_str());
    return nullptr;
  }
  forgetStructNames(**Copy);
  return wrap(Copy->release());
}

} // extern "C"
