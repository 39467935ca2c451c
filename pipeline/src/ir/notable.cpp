// Reads the bodies of a module that was read without, as far as they say what concerns the whole of it. Called from `ffi.rs` alone.
//
// A body that takes the address of a block may mean a block of another one; assembly in a body may define what others use, or have
// sections that lie beside those of other files; what stands before a function is noted with its body. The bitcode is looked through for signs of these, which is much faster than reading it: the
// constants of a function come first, and the rest is skipped.

#include "assembly.h"
#include <llvm-c/Core.h>
#include <llvm/Bitcode/BitcodeReader.h>
#include <llvm/Bitcode/LLVMBitCodes.h>
#include <llvm/Bitstream/BitstreamReader.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Constants.h>
#include <llvm/Linker/Linker.h>
#include <llvm/Support/MemoryBuffer.h>

using namespace llvm;

namespace {

// The word that `-fsanitize=function` puts before each function.
const int64_t SanitizedMark = int32_t(0xc105cafe);

// The signs in one module of bitcode.
class Signs {
public:
  struct Body {
    bool HasBlockAddress = false;
    AssemblyNames Assembly;
  };
  std::vector<Body> Bodies; // In their order, which is that of the functions.
  AssemblyNames All;        // The assembly of all bodies.
  bool IsSanitized = false;
  bool HasBFloat = false; // Whether values may have this type.

  Error read(StringRef Bitcode) {
    BitstreamCursor Stream(Bitcode);
    while (!Stream.AtEndOfStream()) {
      Expected<BitstreamEntry> Entry = Stream.advance();
      if (!Entry) return Entry.takeError();
      if (Entry->Kind != BitstreamEntry::SubBlock) break;
      if (Error Failed = Entry->ID == bitc::MODULE_BLOCK_ID ? readModule(Stream) : Stream.SkipBlock()) return Failed;
    }
    return Error::success();
  }

private:
  BitstreamBlockInfo Info;

  Error readModule(BitstreamCursor &Stream) {
    Stream.setBlockInfo(&Info);
    return eachBlock(Stream, bitc::MODULE_BLOCK_ID, [&](unsigned Block) {
      switch (Block) {
      case bitc::BLOCKINFO_BLOCK_ID: return readBlockInfo(Stream);
      case bitc::TYPE_BLOCK_ID_NEW: return readTypes(Stream);
      case bitc::CONSTANTS_BLOCK_ID: return readConstants(Stream, nullptr);
      case bitc::FUNCTION_BLOCK_ID: {
        Bodies.emplace_back();
        BitstreamCursor Inside = Stream; // The rest of the body is jumped over.
        if (Error Failed = readBody(Inside, Bodies.back())) return Failed;
        return Stream.SkipBlock();
      }
      default: return Stream.SkipBlock();
      }
    });
  }

  Error readBlockInfo(BitstreamCursor &Stream) {
    Expected<std::optional<BitstreamBlockInfo>> Read = Stream.ReadBlockInfoBlock();
    if (!Read) return Read.takeError();
    if (*Read) Info = std::move(**Read);
    return Error::success();
  }

  Error readTypes(BitstreamCursor &Stream) {
    if (Error Failed = Stream.EnterSubBlock(bitc::TYPE_BLOCK_ID_NEW)) return Failed;
    while (true) {
      Expected<BitstreamEntry> Entry = Stream.advance();
      if (!Entry) return Entry.takeError();
      if (Entry->Kind != BitstreamEntry::Record) return Error::success();
      Expected<unsigned> Code = Stream.skipRecord(Entry->ID);
      if (!Code) return Code.takeError();
      HasBFloat |= *Code == bitc::TYPE_CODE_BFLOAT;
    }
  }

  template <typename Each> static Error eachBlock(BitstreamCursor &Stream, unsigned Block, Each Enter) {
    if (Error Failed = Stream.EnterSubBlock(Block)) return Failed;
    while (true) {
      Expected<BitstreamEntry> Entry = Stream.advance();
      if (!Entry) return Entry.takeError();
      switch (Entry->Kind) {
      case BitstreamEntry::EndBlock: return Error::success();
      case BitstreamEntry::Error: return createStringError("the bitcode is cut off");
      case BitstreamEntry::SubBlock:
        if (Error Failed = Enter(Entry->ID)) return Failed;
        break;
      case BitstreamEntry::Record:
        if (Expected<unsigned> Code = Stream.skipRecord(Entry->ID); !Code) return Code.takeError();
      }
    }
  }

  // Its constants stand before its instructions.
  Error readBody(BitstreamCursor &Stream, Body &To) {
    if (Error Failed = Stream.EnterSubBlock(bitc::FUNCTION_BLOCK_ID)) return Failed;
    while (true) {
      Expected<BitstreamEntry> Entry = Stream.advance();
      if (!Entry) return Entry.takeError();
      if (Entry->Kind == BitstreamEntry::SubBlock) {
        if (Entry->ID == bitc::CONSTANTS_BLOCK_ID) return readConstants(Stream, &To);
        if (Error Failed = Stream.SkipBlock()) return Failed;
        continue;
      }
      if (Entry->Kind != BitstreamEntry::Record) return Error::success();
      Expected<unsigned> Code = Stream.skipRecord(Entry->ID);
      if (!Code) return Code.takeError();
      if (*Code != bitc::FUNC_CODE_DECLAREBLOCKS) return Error::success();
    }
  }

  Error readConstants(BitstreamCursor &Stream, Body *To) {
    if (Error Failed = Stream.EnterSubBlock(bitc::CONSTANTS_BLOCK_ID)) return Failed;
    SmallVector<uint64_t, 64> Record;
    while (true) {
      Expected<BitstreamEntry> Entry = Stream.advance();
      if (!Entry) return Entry.takeError();
      if (Entry->Kind != BitstreamEntry::Record) return Error::success();
      Record.clear();
      Expected<unsigned> Code = Stream.readRecord(Entry->ID, Record);
      if (!Code) return Code.takeError();
      if (To) readConstant(*Code, Record, *To);
      else if (*Code == bitc::CST_CODE_INTEGER && !Record.empty())
        IsSanitized |= (Record[0] & 1 ? -int64_t(Record[0] >> 1) : int64_t(Record[0] >> 1)) == SanitizedMark;
    }
  }

  void readConstant(unsigned Code, ArrayRef<uint64_t> Record, Body &To) {
    switch (Code) {
    case bitc::CST_CODE_BLOCKADDRESS: To.HasBlockAddress = true; break;
    // [type, flags, size, text…], and before there was a type.
    case bitc::CST_CODE_INLINEASM: readAssembly(Record.drop_front(std::min<size_t>(1, Record.size())), To); break;
    case bitc::CST_CODE_INLINEASM_OLD: case bitc::CST_CODE_INLINEASM_OLD2: case bitc::CST_CODE_INLINEASM_OLD3:
      readAssembly(Record, To);
    }
  }

  void readAssembly(ArrayRef<uint64_t> Record, Body &To) {
    if (Record.size() < 2) return;
    std::string Text;
    for (uint64_t Letter : Record.drop_front(2).take_front(Record[1])) Text += char(Letter);
    To.Assembly.read(Text), All.read(Text);
  }
};

// The module of the file, if it is one.
std::optional<BitcodeModule> onlyModule(MemoryBufferRef File) {
  Expected<std::vector<BitcodeModule>> Modules = getBitcodeModuleList(File);
  if (Modules && Modules->size() == 1) return Modules->front();
  if (!Modules) consumeError(Modules.takeError());
  return std::nullopt;
}

// Declares the functions that code generation may call for values of this type, and that not every machine has. A session that misses one
// compiles the module before the program starts, and so finds out whether it is called.
void declareHelpers(Module &M) {
  Type *Small = Type::getBFloatTy(M.getContext());
  std::pair<const char *, Type *> Helpers[] = {{"__truncsfbf2", Type::getFloatTy(M.getContext())}, {"__truncdfbf2", Type::getDoubleTy(M.getContext())}};
  for (auto [Name, From] : Helpers) M.getOrInsertFunction(Name, FunctionType::get(Small, {From}, false));
}

} // namespace

extern "C" {

// Reads those bodies of a lazily read module that say something of more than themselves. `Bytes` is its file. One that is damaged stays
// unread.
void uruk_llvm_read_notable(LLVMModuleRef Handle, const char *Bytes, size_t Size) {
  Module &M = *unwrap(Handle);
  std::optional<BitcodeModule> Bitcode = onlyModule(MemoryBufferRef(StringRef(Bytes, Size), "bitcode"));
  if (!Bitcode) return; // More than one were joined, and read whole.
  Signs Found;
  if (Error Failed = Found.read(Bitcode->getBuffer())) consumeError(std::move(Failed));
  if (Found.HasBFloat) declareHelpers(M);
  // Any body may refer to the ends of sections.
  bool All = Found.IsSanitized || M.getModuleFlag("kcfi") || any_of(M.global_values(), isDeclaredEndOfSections);
  SmallVector<Function *, 8> Notable;
  auto Next = Found.Bodies.begin(), End = Found.Bodies.end();
  for (Function &F : M) {
    if (F.isDeclaration()) continue;
    auto SaysMore = [&](const Signs::Body &Body) {
      return Body.HasBlockAddress || Body.Assembly.usesAnyOf(Found.All) || Body.Assembly.sharesSections();
    };
    bool IsNotable = All || (Next != End && SaysMore(*Next));
    if (IsNotable) Notable.push_back(&F);
    if (Next != End) ++Next;
  }
  for (Function *F : Notable)
    if (Error Failed = F->materialize()) consumeError(std::move(Failed));
}

// The modules of a file that has several, as one. Null, without a message, of any other file.
LLVMModuleRef uruk_llvm_join_modules(LLVMContextRef Context, const char *Bytes, size_t Size, char **Message) {
  Expected<std::vector<BitcodeModule>> Modules = getBitcodeModuleList(MemoryBufferRef(StringRef(Bytes, Size), "bitcode"));
  if (!Modules || Modules->size() < 2) {
    if (!Modules) consumeError(Modules.takeError());
    return nullptr;
  }
  std::unique_ptr<Module> Whole;
  for (BitcodeModule &Part : *Modules) {
    Expected<std::unique_ptr<Module>> Read = Part.parseModule(*unwrap(Context));
    std::string Why = Read ? "" : toString(Read.takeError());
    if (Read && !Whole) Whole = std::move(*Read);
    else if (Read && Linker::linkModules(*Whole, std::move(*Read))) Why = "its modules cannot be joined";
    if (!Why.empty()) {
      *Message = LLVMCreateMessage(Why.c_str());
      return nullptr;
    }
  }
  return wrap(Whole.release());
}

} // extern "C"
