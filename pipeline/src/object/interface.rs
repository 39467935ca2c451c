//! Definitions and references of an ELF object, read from its symbol table without linking it.
//!
//! Works on untrusted bytes: for all input the answer is an interface or an [`ObjectError`]. Sections are not looked into, apart from the
//! symbol table, its strings and the COMDAT groups.

use object::elf;
use object::read::StringTable;
use object::read::elf::{FileHeader, SectionHeader, SectionTable, Sym, SymbolTable};
use object::{LittleEndian, SymbolIndex};
use uruk_core::SymbolFlags;

use super::proportion::{NameBudget, NamesTooLong, SectionsError, check_sections};
use super::{CommonExtent, FileKind, ObjectBuffer, ObjectError, foreign_format};
use crate::arch::Architecture;

/// The symbols an object defines and needs, in the order of its symbol table; names borrow from the object.
#[derive(Clone, Debug, Default)]
pub struct ObjectInterface<'data> {
    /// The architecture that it is for.
    pub architecture: Architecture,
    /// The symbols it defines for others. Local ones are left out.
    pub defined: Vec<ObjectSymbol<'data>>,
    /// The names it refers to and does not define.
    pub undefined: Vec<UndefinedName<'data>>,
    /// Whether it has code to run before the program: `.init_array`, `.preinit_array`, `.ctors`, code in `.init`.
    pub has_initializers: bool,
    /// Whether it has code to run after the program: `.fini_array`, `.dtors`, code in `.fini`.
    pub has_finalizers: bool,
    /// Whether it has sections that linkers lay next to those of the same name in other objects, or asks
    /// where they are (`__start_X`, `__stop_X`).
    pub shares_sections: bool,
    /// Whether it has thread-local variables.
    pub has_thread_locals: bool,
}

/// One definition of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectSymbol<'data> {
    /// Its name.
    pub name: &'data str,
    /// Its flags.
    pub flags: SymbolFlags,
    /// Its size and alignment, if it is tentative.
    pub common: Option<CommonExtent>,
    /// Where its code is, if the object says that it is a function: the section and the offset. Two names of one function have one place.
    pub code: Option<(usize, u64)>,
    /// Its position in the object's symbol table.
    pub index: usize,
}

/// One reference of an object to something outside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UndefinedName<'data> {
    /// Its name.
    pub name: &'data str,
    /// Whether the object can do without it: then it sees a null address.
    pub weak: bool,
}

type ElfHeader = elf::FileHeader64<LittleEndian>;
type Sections<'data> = SectionTable<'data, ElfHeader>;
type Symbols<'data> = SymbolTable<'data, ElfHeader>;
const ENDIAN: LittleEndian = LittleEndian;

/// The mark that GCC defines in an object that only its own linker plugin can make sense of.
const INTERMEDIATE_ONLY_MARK: &str = "__gnu_lto_slim";

impl<'data> ObjectInterface<'data> {
    /// Reads the interface of `object`.
    ///
    /// # Errors
    /// [`ObjectError`] when the object is foreign, already linked, truncated or malformed, or describes more than its
    /// size allows (`proportion.rs`).
    ///
    /// # Cost
    /// One pass over the symbol table; nothing is copied.
    pub fn read(object: &'data ObjectBuffer) -> Result<Self, ObjectError> {
        let (header, architecture) = check_header(object)?;
        let mut interface = Self::read_tables(object, header).map_err(|error| ObjectError::Malformed {
            object: object.name().clone(),
            size_bytes: object.size_bytes(),
            what: error.to_string(),
        })?;
        if interface.defined.iter().any(|symbol| symbol.name == INTERMEDIATE_ONLY_MARK) {
            return Err(ObjectError::IntermediateOnly { object: object.name().clone() });
        }
        interface.architecture = architecture;
        Ok(interface)
    }

    /// # Errors
    /// [`ObjectError::ForeignMachine`] if `object`, whose interface this is, is for another architecture than the `wanted` one.
    pub fn check_architecture(&self, object: &ObjectBuffer, wanted: Architecture) -> Result<(), ObjectError> {
        if self.architecture == wanted {
            return Ok(());
        }
        let (object, machine) = (object.name().clone(), self.architecture.to_string());
        Err(ObjectError::ForeignMachine { object, machine, wanted })
    }

    /// Whether a program that refers to nothing of the object runs the same without it.
    pub fn is_passive(&self) -> bool {
        let acts =
            self.has_initializers || self.has_finalizers || self.shares_sections || self.has_thread_locals;
        !acts && self.defined.iter().all(|symbol| symbol.common.is_none())
    }

    fn read_tables(object: &'data ObjectBuffer, header: &'data ElfHeader) -> Result<Self, TableError> {
        let data = object.bytes();
        let sections = header.sections(ENDIAN, data)?;
        let symbols = sections.symbols(ENDIAN, data, elf::SHT_SYMTAB)?;
        let headers = header.section_headers(ENDIAN, data)?;
        // A cut-off object is found out here.
        check_sections(headers, data.len())?;
        let in_comdat = comdat_members(data, &sections)?;
        let mut interface = Self::default();
        let mut names = NameBudget::of_file(data.len());
        for section in sections.iter() {
            if section.sh_size(ENDIAN) == 0 {
                continue;
            }
            let name = sections.section_name(ENDIAN, section)?;
            names.spend(name)?;
            let kind = section.sh_type(ENDIAN);
            let is_code = section.sh_flags(ENDIAN).contains(elf::SHF_EXECINSTR);
            interface.has_thread_locals |= section.sh_flags(ENDIAN).contains(elf::SHF_TLS);
            interface.has_initializers |= is_initializer_section(kind, name) || is_code && name == b".init";
            interface.has_finalizers |= is_finalizer_section(kind, name) || is_code && name == b".fini";
            interface.shares_sections |=
                section.sh_flags(ENDIAN).contains(elf::SHF_ALLOC) && is_identifier(name);
        }
        for (index, symbol) in symbols.enumerate() {
            if symbol.st_bind() != elf::STB_LOCAL {
                let name = symbol_name(symbols.strings(), index, symbol)?;
                names.spend(name.as_bytes())?;
                interface.add(&sections, &symbols, &in_comdat, (index, symbol), name)?;
            }
        }
        Ok(interface)
    }

    fn add(
        &mut self,
        sections: &Sections<'data>,
        symbols: &Symbols<'data>,
        in_comdat: &[bool],
        (index, symbol): (SymbolIndex, &'data elf::Sym64<LittleEndian>),
        name: &'data str,
    ) -> Result<(), TableError> {
        if symbol.is_undefined(ENDIAN) {
            // The first entry of a symbol table is undefined and has no name.
            if !name.is_empty() {
                self.shares_sections |= name.starts_with("__start_") || name.starts_with("__stop_");
                self.undefined.push(UndefinedName { name, weak: symbol.st_bind() == elf::STB_WEAK });
            }
            return Ok(());
        }
        let section = symbols.symbol_section(ENDIAN, symbol, index)?;
        let code = match section {
            Some(section) => {
                let header = sections.section(section)?;
                // A symbol may lie outside of its section, where its contents are unknown.
                header.sh_flags(ENDIAN).contains(elf::SHF_EXECINSTR)
                    && symbol.st_value(ENDIAN) <= header.sh_size(ENDIAN)
            }
            None => false,
        };
        let mut flags = symbol_flags(symbol, code);
        if section.is_some_and(|section| in_comdat.get(section.0) == Some(&true)) {
            flags |= SymbolFlags::WEAK;
        }
        let extent = CommonExtent { size_bytes: symbol.st_size(ENDIAN), align: symbol.st_value(ENDIAN) };
        let common = flags.contains(SymbolFlags::COMMON).then_some(extent);
        let name = default_version(name);
        let is_function = symbol.st_type() == elf::STT_FUNC && code;
        let code = section.filter(|_| is_function).map(|section| (section.0, symbol.st_value(ENDIAN)));
        self.defined.push(ObjectSymbol { name, flags, common, code, index: index.0 });
        Ok(())
    }
}

/// The flags of a definition that is not local. `in_code` says whether it lies in an executable section: a symbol elsewhere cannot be
/// called, even if its type says so.
///
/// A member of a COMDAT group is weak besides, with every binding: the group yields as a whole.
pub(crate) fn symbol_flags(symbol: &elf::Sym64<LittleEndian>, in_code: bool) -> SymbolFlags {
    let mut flags = SymbolFlags::empty();
    flags.set(SymbolFlags::EXPORTED, matches!(symbol.st_visibility(), elf::STV_DEFAULT | elf::STV_PROTECTED));
    flags.set(SymbolFlags::WEAK, matches!(symbol.st_bind(), elf::STB_WEAK | elf::STB_GNU_UNIQUE));
    flags.set(SymbolFlags::COMMON, symbol.is_common(ENDIAN));
    flags.set(SymbolFlags::ABSOLUTE, symbol.is_absolute(ENDIAN));
    match symbol.st_type() {
        elf::STT_TLS => flags |= SymbolFlags::THREAD_LOCAL,
        // Hand-written assembly often leaves the type out.
        elf::STT_FUNC | elf::STT_GNU_IFUNC | elf::STT_NOTYPE if in_code => flags |= SymbolFlags::CALLABLE,
        _ => {}
    }
    flags
}

/// Names that the linker defines for each object anew.
pub(crate) const BOUND_BY_LINKER: [&str; 3] = ["_GLOBAL_OFFSET_TABLE_", "_TLS_MODULE_BASE_", "__dso_handle"];

/// Whether the linker defines `name` for each object anew.
pub(crate) fn is_bound_by_linker(name: &str) -> bool {
    BOUND_BY_LINKER.contains(&name)
}

/// Names that linkers and start files define once for a program, close to its code and data: code refers to them by distances too
/// (`runtime/image.rs`).
pub(crate) const DEFINED_FOR_PROGRAM: [&str; 27] = [
    "__executable_start",
    "__ehdr_start",
    "etext",
    "_etext",
    "__etext",
    "data_start",
    "__data_start",
    "__bss_start",
    "edata",
    "_edata",
    "end",
    "_end",
    "_DYNAMIC",
    "_IO_stdin_used",
    "__GNU_EH_FRAME_HDR",
    "__preinit_array_start",
    "__preinit_array_end",
    "__init_array_start",
    "__init_array_end",
    "__fini_array_start",
    "__fini_array_end",
    "__rela_iplt_start",
    "__rela_iplt_end",
    "__TMC_END__",
    "_init",
    "_fini",
    "_start",
];

/// The name of a definition for other objects: `name` where it is `name@@VERSION`, the default among several (`.symver`).
pub(crate) fn default_version(name: &str) -> &str {
    // Nearly no name has a version, and one byte is found much faster than two.
    if !name.contains('@') {
        return name;
    }
    name.split_once("@@").map_or(name, |(symbol, _)| symbol)
}

/// Whether linkers give the ends of sections of this name names of their own.
fn is_identifier(section: &[u8]) -> bool {
    let head = section.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_');
    head && section.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

fn is_initializer_section(kind: elf::SectionType, name: &[u8]) -> bool {
    matches!(kind, elf::SHT_INIT_ARRAY | elf::SHT_PREINIT_ARRAY)
        || is_or_is_under(name, b".init_array")
        || is_or_is_under(name, b".preinit_array")
        || is_or_is_under(name, b".ctors")
}

fn is_finalizer_section(kind: elf::SectionType, name: &[u8]) -> bool {
    kind == elf::SHT_FINI_ARRAY || is_or_is_under(name, b".fini_array") || is_or_is_under(name, b".dtors")
}

fn is_or_is_under(name: &[u8], stem: &[u8]) -> bool {
    name.strip_prefix(stem).is_some_and(|rest| rest.is_empty() || rest[0] == b'.')
}

/// Whether each section belongs to a COMDAT group.
fn comdat_members(data: &[u8], sections: &Sections<'_>) -> Result<Vec<bool>, TableError> {
    let mut in_comdat = vec![false; sections.len()];
    for section in sections.iter() {
        if let Some((flags, group)) = section.group(ENDIAN, data)?
            && flags == elf::GRP_COMDAT
        {
            for index in group {
                // An index that is out of bounds names no section.
                if let Some(member) = in_comdat.get_mut(index.get(ENDIAN) as usize) {
                    *member = true;
                }
            }
        }
    }
    Ok(in_comdat)
}

fn symbol_name<'data>(
    strings: StringTable<'data>,
    index: SymbolIndex,
    symbol: &elf::Sym64<LittleEndian>,
) -> Result<&'data str, TableError> {
    let name = symbol.name(ENDIAN, strings)?;
    std::str::from_utf8(name)
        .map_err(|_| TableError::Name { index: index.0, name: String::from_utf8_lossy(name).into_owned() })
}

/// Checks everything the header says about the kind of file. Gives its architecture too.
fn check_header(object: &ObjectBuffer) -> Result<(&ElfHeader, Architecture), ObjectError> {
    let data = object.bytes();
    if !data.starts_with(&elf::ELFMAG) {
        return Err(ObjectError::NotElf { object: object.name().clone(), found: describe_start(data) });
    }
    let malformed = |what: &str| ObjectError::Malformed {
        object: object.name().clone(),
        size_bytes: data.len(),
        what: what.to_owned(),
    };
    // Class, byte order and machine lie where they are in every ELF file, so they can be read before
    // choosing the layout of the rest.
    let (Some(&class), Some(&order), Some(machine)) = (data.get(4), data.get(5), data.get(18..20)) else {
        return Err(malformed("the header is incomplete"));
    };
    let machine = [machine[0], machine[1]];
    let machine = elf::Machine(match order {
        2 => u16::from_be_bytes(machine),
        _ => u16::from_le_bytes(machine),
    });
    let known = Architecture::of_machine(machine.0);
    let known = known.filter(|_| (class, order) == (elf::ELFCLASS64.0, elf::ELFDATA2LSB.0));
    let Some(architecture) = known else {
        return Err(ObjectError::ForeignMachine {
            object: object.name().clone(),
            machine: machine_name(machine, class, order),
            wanted: Architecture::HOST,
        });
    };
    let header = ElfHeader::parse(data).map_err(|error| malformed(&error.to_string()))?;
    let kind = header.e_type(ENDIAN);
    if kind != elf::ET_REL {
        return Err(ObjectError::NotRelocatable { object: object.name().clone(), kind: kind_name(kind) });
    }
    Ok((header, architecture))
}

fn describe_start(data: &[u8]) -> String {
    match FileKind::of(data) {
        FileKind::Empty => "the file is empty".to_owned(),
        FileKind::Bitcode => "it is LLVM bitcode".to_owned(),
        FileKind::Archive => "it is an archive".to_owned(),
        FileKind::ThinArchive => "it is a thin archive".to_owned(),
        _ => match foreign_format(data) {
            Some(what) => format!("it is {what}"),
            None => format!("it begins with {}", data[..data.len().min(8)].escape_ascii()),
        },
    }
}

fn kind_name(kind: elf::FileType) -> String {
    match kind {
        elf::ET_EXEC => "an executable".to_owned(),
        elf::ET_DYN => "a shared library or position-independent executable".to_owned(),
        elf::ET_CORE => "a core dump".to_owned(),
        other => format!("an ELF file of type {:#x}", other.0),
    }
}

fn machine_name(machine: elf::Machine, class: u8, order: u8) -> String {
    let name = match machine {
        elf::EM_386 => "x86 (32 bits)",
        elf::EM_68K => "Motorola 68000",
        elf::EM_AMDGPU => "AMD graphics processors",
        elf::EM_AVR => "AVR",
        elf::EM_BPF => "BPF",
        elf::EM_CUDA => "NVIDIA graphics processors",
        elf::EM_HEXAGON => "Hexagon",
        elf::EM_MSP430 => "MSP430",
        elf::EM_SPARC | elf::EM_SPARC32PLUS => "SPARC (32 bits)",
        elf::EM_XTENSA => "Xtensa",
        elf::EM_X86_64 => "x86-64",
        elf::EM_ARM => "ARM (32 bits)",
        elf::EM_AARCH64 => "AArch64",
        elf::EM_RISCV => "RISC-V",
        elf::EM_PPC => "PowerPC (32 bits)",
        elf::EM_PPC64 => "PowerPC (64 bits)",
        elf::EM_S390 => "IBM Z",
        elf::EM_MIPS => "MIPS",
        elf::EM_SPARCV9 => "SPARC V9",
        elf::EM_LOONGARCH => "LoongArch",
        other => return format!("machine {:#06x}", other.0),
    };
    match (Architecture::of_machine(machine.0).is_some(), class, order) {
        (true, 1, _) => format!("{name} with 32-bit pointers (x32, ILP32)"),
        (true, _, 2) => format!("{name} in big-endian byte order"),
        (true, _, _) => format!("{name} of ELF class {class}"),
        _ => name.to_owned(),
    }
}

/// A defect inside an object whose header is good.
#[derive(Debug, thiserror::Error)]
enum TableError {
    #[error(transparent)]
    Object(#[from] object::read::Error),
    #[error(transparent)]
    Sections(#[from] SectionsError),
    #[error(transparent)]
    Names(#[from] NamesTooLong),
    #[error("symbol {index} has a name that is not UTF-8: {name}")]
    Name { index: usize, name: String },
}
