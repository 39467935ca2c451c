//! Fragments of code in `.init` and `.fini`, which a static linker lays one after another into one function.
//!
//! ```text
//!  start   the stack is aligned        ours, as in the C library's crti.o
//!  .init   call OPENSSL_cpuid_setup    the object's
//!  end     return                      ours, as in its crtn.o
//! ```
//! Here each fragment becomes a function of its own. They are called in link order, so the fragments still run one
//! after another. The three parts are three sections that follow one another, and so lie next to one another in memory.

use object::elf;
use object::read::elf::SectionHeader;

use super::{ENDIAN, OBJECT, Parser};
use crate::link::error::LinkError;
use crate::link::graph::{BlockId, InitRole, Section, SectionId, SectionRole};

type FragmentHeader = elf::SectionHeader64<object::LittleEndian>;

/// Whether a section that takes part is a fragment, and of which function.
pub(super) fn fragment_role(header: &FragmentHeader, name: &str) -> Option<InitRole> {
    let is_code = header.sh_flags(ENDIAN).contains(elf::SHF_EXECINSTR);
    match name {
        _ if !is_code || header.sh_size(ENDIAN) == 0 => None,
        ".init" => Some(InitRole::InitFragment),
        ".fini" => Some(InitRole::FiniFragment),
        _ => None,
    }
}

impl<'a> Parser<'a> {
    /// Adds the start of the function around a fragment that is about to be added.
    pub(super) fn start_fragment(
        &mut self,
        header: &'a FragmentHeader,
        name: &str,
        init: InitRole,
    ) -> Result<(), LinkError> {
        let (arch, align) = (self.graph.arch, header.sh_addralign(ENDIAN).max(1));
        let Some(start) = arch.fragment_start(align).filter(|_| align.is_power_of_two()) else {
            let what = format!("a fragment of code that is aligned to {align:#x}; expected at most 64");
            return Err(self.error(name, 0, what));
        };
        let content = header.data(ENDIAN, self.bytes).unwrap_or_default();
        if arch.returns(content) {
            let what = "a fragment of code that returns, as in the C library's crtn.o; leave that object out, each \
                        fragment gets an end of its own";
            return Err(self.error(name, 0, what));
        }
        self.add_code(start, start.len().ilog2() as u8, Some(init));
        Ok(())
    }

    /// Adds the end of the function around the fragment that was added last.
    pub(super) fn end_fragment(&mut self) {
        self.add_code(self.graph.arch.fragment_end(), 0, None);
    }

    fn add_code(&mut self, code: &'static [u8], align_log2: u8, init: Option<InitRole>) {
        let id = SectionId::of(self.graph.sections.len());
        self.graph.sections.push(Section {
            name: Default::default(),
            object: OBJECT,
            file: 0,
            number: 0,
            role: SectionRole::Code,
            init,
            size: code.len() as u64,
            align_log2,
            is_grouped: false,
            first_block: BlockId::of(self.graph.blocks.len()),
            block_count: 0,
        });
        self.graph.contents.push(code);
        self.add_block(id, 0, code.len() as u64, align_log2);
    }
}
