//! The block that a program finds at its start: as the system lays it out, with pointers and strings in one piece.
//!
//! ```text
//!   argc │ argv … null │ envp … null │ auxiliary vector … null pair │ strings of argv, of envp
//! ```
//! Programs rely on that order: Go's runtime finds the environment behind the arguments, and the auxiliary vector behind the environment. Others
//! write a title over the strings, from the first argument to the end of the environment.
//!
//! The auxiliary vector is the process's own. Four of its entries are the program's: `AT_PHDR`, `AT_PHNUM` and `AT_ENTRY` are those of the
//! header that `dl_iterate_phdr` tells of (`image.rs`), if there is one, and `AT_EXECFN` is the program's name.
//!
//! A block stays as long as the process, as natively.

use std::ffi::{CStr, CString, c_char, c_int};

use super::image;

/// Where the parts of a block are.
#[derive(Clone, Copy, Debug)]
pub(super) struct StartBlock {
    pub(super) argc: c_int,
    pub(super) argv: *mut *mut c_char,
    pub(super) envp: *mut *mut c_char,
}

// SAFETY: the memory stays, and the engine writes to it before the value exists alone; program code may write to it as in any process.
unsafe impl Send for StartBlock {}
// SAFETY: as above; only the pointers are read.
unsafe impl Sync for StartBlock {}

impl StartBlock {
    /// Lays out a block of `arguments` and of the environment at the moment. The first argument is the program's name.
    pub(super) fn new(arguments: &[CString]) -> Self {
        // SAFETY: `environ` is a vector of terminated strings, which a null pointer ends. No other thread changes it, as nowhere.
        let environment = unsafe { strings_of(super::startup::environment()) };
        let strings: Vec<&CStr> = arguments.iter().map(CString::as_c_str).chain(environment).collect();
        let auxiliary = auxiliary_vector();
        let (argc, name) = (arguments.len(), arguments.first().map(|_| 0));
        let words = 1 + strings.len() + 2 + 2 * auxiliary.len();
        let bytes: usize = strings.iter().map(|string| string.to_bytes_with_nul().len()).sum();
        let pairs = words.div_ceil(2) + bytes.div_ceil(16);
        // Aligned as a stack is.
        let block = Box::leak(vec![0_u128; pairs].into_boxed_slice()).as_mut_ptr().cast::<u64>();
        // SAFETY: the block has room for all words, and behind them for the strings; it belongs to this function alone.
        unsafe {
            let mut text = block.add(words.next_multiple_of(2)).cast::<u8>();
            let mut addresses = Vec::with_capacity(strings.len());
            for string in &strings {
                let bytes = string.to_bytes_with_nul();
                text.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
                addresses.push(text.expose_provenance() as u64);
                text = text.add(bytes.len());
            }
            let (argv, envp) = addresses.split_at(argc);
            let executed = name.map(|name: usize| addresses[name]);
            let auxiliary = auxiliary.iter().flat_map(|&[kind, value]| match executed {
                Some(executed) if kind == libc::AT_EXECFN => [kind, executed],
                _ => [kind, value],
            });
            let all = [argc as u64].into_iter().chain(argv.iter().copied()).chain([0]);
            let all = all.chain(envp.iter().copied()).chain([0]).chain(auxiliary);
            all.enumerate().for_each(|(at, word)| block.add(at).write(word));
            let argv = block.add(1).cast::<*mut c_char>();
            Self { argc: argc as c_int, argv, envp: argv.add(argc + 1) }
        }
    }
}

/// The strings of a vector that a null pointer ends.
///
/// # Safety
/// It is one, or null, and stays as it is.
unsafe fn strings_of<'s>(mut vector: *mut *mut c_char) -> Vec<&'s CStr> {
    let mut strings = Vec::new();
    // SAFETY: the caller's obligation.
    unsafe {
        while !vector.is_null() && !(*vector).is_null() {
            strings.push(CStr::from_ptr(*vector));
            vector = vector.add(1);
        }
    }
    strings
}

/// All entries of the process's vector, and the pair that ends it.
fn auxiliary_vector() -> Vec<[u64; 2]> {
    /// No system has one of a larger number.
    const KINDS: std::ops::Range<u64> = 2..64;
    let entry = |kind| Some([kind, image::auxiliary_value(kind)?]);
    KINDS.filter_map(entry).chain([[libc::AT_NULL, 0]]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_and_strings_lie_in_a_row() {
        let arguments = [c"program".to_owned(), c"".to_owned(), c"one two".to_owned()];
        let StartBlock { argc, argv, envp } = StartBlock::new(&arguments);
        assert_eq!(argc, 3);
        // SAFETY: the vectors of the block, and what is behind them.
        unsafe {
            assert_eq!(argv.cast::<u64>().sub(1).read(), 3);
            assert!(argv.add(3).read().is_null() && argv.add(4) == envp);
            let strings: Vec<_> = strings_of(argv).into_iter().chain(strings_of(envp)).collect();
            assert_eq!(strings[..3], arguments.each_ref().map(CString::as_c_str));
            let environment = strings_of(super::super::startup::environment());
            assert_eq!(strings[3..], environment);
            let ends = strings.iter().map(|string| string.as_ptr().add(string.to_bytes_with_nul().len()));
            assert!(ends.zip(&strings[1..]).all(|(end, next)| end == next.as_ptr()));
            let pairs = envp.add(environment.len() + 1).cast::<[u64; 2]>();
            let pairs: Vec<_> =
                (0..).map(|at| pairs.add(at).read()).take_while(|pair| pair[0] != 0).collect();
            let value = |kind| pairs.iter().find(|pair| pair[0] == kind).map(|pair| pair[1]);
            assert_eq!(value(libc::AT_PAGESZ), Some(libc::getauxval(libc::AT_PAGESZ)));
            assert_eq!(value(libc::AT_RANDOM), Some(libc::getauxval(libc::AT_RANDOM)));
            assert_eq!(value(libc::AT_EXECFN), Some(argv.read().expose_provenance() as u64));
        }
    }
}
