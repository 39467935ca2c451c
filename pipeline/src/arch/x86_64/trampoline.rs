//! An assembler of trampolines between calling conventions, and the call frame information of these.
//!
//! ```text
//!   frame:  return address │ rbp │ rbx │ r12 │ a word for each parameter
//! ```
//!
//! Registers are kept over calls in that frame: `rbx` has the instance and `r12` the boxed arguments, where there are some. `invoke/code.rs`
//! says which steps a trampoline takes.

use super::{CodeField, kinds};

/// A register in which a value is passed.
#[derive(Clone, Copy)]
pub(crate) enum Register {
    /// The last bytes of `mov` between memory and that register, without the base: whether it is one of the upper eight, and its number.
    Integer { is_upper: bool, number: u8 },
    /// `xmm` and its number.
    Float { number: u8 },
}

impl Register {
    /// The first argument, if it is an integer: `rdi`.
    pub(crate) const ARGUMENT: Self = Self::Integer { is_upper: false, number: 7 };
    /// An integer that is given: `rax`.
    pub(crate) const RESULT: Self = Self::Integer { is_upper: false, number: 0 };
    /// The first argument, if it is a float, and a float that is given: `xmm0`.
    pub(crate) const FLOAT: Self = Self::Float { number: 0 };

    /// Those of integer arguments: `rdi`, `rsi`, `rdx`, `rcx`, `r8`, `r9`.
    pub(crate) fn integers() -> impl Iterator<Item = Self> {
        let registers = [(false, 7), (false, 6), (false, 2), (false, 1), (true, 0), (true, 1)];
        registers.into_iter().map(|(is_upper, number)| Self::Integer { is_upper, number })
    }

    /// Those of float arguments.
    pub(crate) fn floats() -> impl Iterator<Item = Self> {
        (0..8).map(|number| Self::Float { number })
    }
}

/// From where a word is loaded.
#[derive(Clone, Copy)]
pub(crate) enum WordBase {
    /// `rsp`: the words of the frame.
    Frame,
    /// `r12`: the boxed arguments.
    Arguments,
}

/// The code of a trampoline, as far as it is written.
pub(crate) struct Trampoline(Vec<u8>);

impl Trampoline {
    /// `push rbp; mov rbp, rsp; push rbx; push r12; sub rsp, …`
    const BEGIN: [u8; 10] = [0x55, 0x48, 0x89, 0xe5, 0x53, 0x41, 0x54, 0x48, 0x81, 0xec];
    /// Behind the last push.
    const PUSHED: usize = 7;

    /// Where [`frames`](Self::frames) say where the code begins.
    pub(crate) const FRAMES_BEGIN: CodeField = CodeField { offset: 32, kind: kinds::DELTA_32, addend: 0 };

    /// Makes the frame.
    pub(crate) fn begin(parameters: usize) -> Self {
        let mut code = Self(Self::BEGIN.to_vec());
        code.number(frame_bytes(parameters));
        code
    }

    /// Keeps the instance and the boxed arguments, which are the first two arguments.
    pub(crate) fn keep_boxed_arguments(&mut self) {
        self.put(&[0x48, 0x89, 0xfb, 0x49, 0x89, 0xf4]); // mov rbx, rdi; mov r12, rsi
    }

    /// Calls the function in the word at `offset` of the instance that was kept.
    pub(crate) fn call_kept_instance(&mut self, offset: usize) {
        self.put(&[0xff, 0x93]); // call [rbx + …]
        self.number(offset);
    }

    /// Calls the function in the word at `offset` of `instance`, with the instance, the words of the frame, and how many they are.
    pub(crate) fn call_boxed(&mut self, instance: u64, parameters: usize, offset: usize) {
        self.put(&[0x48, 0xbf]); // mov rdi, …
        self.put(&instance.to_le_bytes());
        self.put(&[0x48, 0x89, 0xe6, 0xba]); // mov rsi, rsp; mov edx, …
        self.number(parameters);
        self.put(&[0xff, 0x97]); // call [rdi + …]
        self.number(offset);
    }

    /// `mov rax, …; call rax`
    pub(crate) fn call(&mut self, function: u64) {
        self.put(&[0x48, 0xb8]);
        self.put(&function.to_le_bytes());
        self.put(&[0xff, 0xd0]);
    }

    /// Has the result of a call be the argument of the next one: a float stays in its register.
    pub(crate) fn pass_result(&mut self, taken: Register) {
        if let Register::Integer { .. } = taken {
            self.put(&[0x48, 0x89, 0xc7]); // mov rdi, rax
        }
    }

    pub(crate) fn load(&mut self, into: Register, base: WordBase, index: usize) {
        self.move_word(into, base, index, [0x8b, 0x10]);
    }

    pub(crate) fn store(&mut self, from: Register, index: usize) {
        self.move_word(from, WordBase::Frame, index, [0x89, 0x11]);
    }

    /// Takes the frame down and returns.
    pub(crate) fn end(mut self, parameters: usize) -> Self {
        self.put(&[0x48, 0x81, 0xc4]); // add rsp, …
        self.number(frame_bytes(parameters));
        self.put(&[0x41, 0x5c, 0x5b, 0x5d, 0xc3]); // pop r12; pop rbx; pop rbp; ret
        self
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Call frame information: a common entry, then that of the trampoline.
    ///
    /// ```text
    ///   0  common entry: the frame lies 8 bytes above the stack pointer, and begins with the return address
    ///  24  entry: 28 back to 0, where the code begins, how long it is
    ///  41  after `push rbp`; after `mov rbp, rsp`; after `push rbx`; after `push r12`; at `ret`
    /// ```
    pub(crate) fn frames(&self) -> [u8; 64] {
        #[rustfmt::skip]
        let mut frames = [
            20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0,
            36, 0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x41, 0x83, 3, 0x42, 0x8c, 4, 0x04, 0, 0, 0, 0, 0x0c, 7, 8, 0,
        ];
        // A trampoline has at most fourteen parameters.
        let length = self.0.len() as u32;
        frames[36..40].copy_from_slice(&length.to_le_bytes());
        let to_return = length - 1 - Self::PUSHED as u32;
        frames[56..60].copy_from_slice(&to_return.to_le_bytes());
        frames
    }

    /// `mov` or `movsd`, by their opcodes.
    fn move_word(&mut self, register: Register, base: WordBase, index: usize, [integer, float]: [u8; 2]) {
        let base = u8::from(matches!(base, WordBase::Arguments));
        let number = match register {
            Register::Integer { is_upper, number } => {
                self.put(&[0x48 | u8::from(is_upper) << 2 | base, integer]);
                number
            }
            Register::Float { number } => {
                self.put(&[0xf2, 0x40 | base, 0x0f, float]);
                number
            }
        };
        self.put(&[0x84 | number << 3, 0x24]); // the base and 32 bits
        self.number(8 * index);
    }

    /// Of 32 bits.
    fn number(&mut self, number: usize) {
        self.put(&(number as u32).to_le_bytes());
    }

    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

/// So many bytes that the stack stays aligned.
fn frame_bytes(parameters: usize) -> usize {
    (8 * parameters).next_multiple_of(16)
}
