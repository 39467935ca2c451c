//! The machine code of a trampoline, and the call frame information of it.
//!
//! ```text
//!   frame:  return address │ rbp │ rbx │ r12 │ a word for each parameter
//! ```
//!
//! Registers are kept over calls in that frame: `rbx` has the instance and `r12` the boxed arguments, where there are some.

use uruk_core::{CodeInstance, ExecutorAddr};

use super::{BoxedValue, ValueType};

/// A register in which a parameter is passed.
#[derive(Clone, Copy)]
pub(super) enum Place {
    /// The last bytes of `mov` between memory and that register, without the base: whether it is one of the upper eight, and its number.
    Integer { is_upper: bool, number: u8 },
    /// `xmm` and its number.
    Float { number: u8 },
}

impl Place {
    /// `rdi`, `rsi`, `rdx`, `rcx`, `r8`, `r9`.
    pub(super) fn integers() -> impl Iterator<Item = Self> {
        let registers = [(false, 7), (false, 6), (false, 2), (false, 1), (true, 0), (true, 1)];
        registers.into_iter().map(|(is_upper, number)| Self::Integer { is_upper, number })
    }

    pub(super) fn floats() -> impl Iterator<Item = Self> {
        (0..8).map(|number| Self::Float { number })
    }
}

/// `rdi` and `rax`, for moves.
const RDI: Place = Place::Integer { is_upper: false, number: 7 };
const RAX: Place = Place::Integer { is_upper: false, number: 0 };
/// `xmm0`: the first float, and a float that is given.
const XMM0: Place = Place::Float { number: 0 };

/// From where a word is loaded.
#[derive(Clone, Copy)]
enum Base {
    /// `rsp`: the words of the frame.
    Frame,
    /// `r12`: the boxed arguments.
    Arguments,
}

pub(super) struct Code(Vec<u8>);

impl Code {
    /// `push rbp; mov rbp, rsp; push rbx; push r12; sub rsp, …`
    const BEGIN: [u8; 10] = [0x55, 0x48, 0x89, 0xe5, 0x53, 0x41, 0x54, 0x48, 0x81, 0xec];
    /// Behind the last push.
    const PUSHED: usize = 7;

    /// Where [`frames`](Self::frames) say where the code begins.
    pub(super) const FRAMES_BEGIN: u64 = 32;

    /// Called boxed: loads and unboxes the arguments, calls `specptr`, boxes the result.
    pub(super) fn unboxing(parameters: &[(ValueType, Place)], result: ValueType) -> Self {
        let mut code = Self::begin(parameters.len());
        code.put(&[0x48, 0x89, 0xfb, 0x49, 0x89, 0xf4]); // mov rbx, rdi; mov r12, rsi
        for (index, (parameter, _)) in parameters.iter().enumerate() {
            if let Some((unboxes, given)) = parameter.unboxing() {
                code.load(RDI, Base::Arguments, index);
                code.call(unboxes);
                code.store(given, index);
            }
        }
        for (index, (parameter, place)) in parameters.iter().enumerate() {
            // Boxed values stay where the caller has put them until now: a collector may have moved them.
            let base = if matches!(parameter, ValueType::Boxed) { Base::Arguments } else { Base::Frame };
            code.load(*place, base, index);
        }
        code.put(&[0xff, 0x93]); // call [rbx + …]
        code.number(CodeInstance::<ExecutorAddr>::SPECPTR_OFFSET);
        if let Some((boxes, taken)) = result.boxing() {
            code.pass_result(taken);
            code.call(boxes);
        }
        code.end(parameters.len())
    }

    /// Called by types: boxes the arguments, calls the `invoke` of an instance, unboxes the result.
    pub(super) fn boxing(
        parameters: &[(ValueType, Place)],
        result: ValueType,
        instance: &CodeInstance<ExecutorAddr>,
    ) -> Self {
        let mut code = Self::begin(parameters.len());
        for (index, (_, place)) in parameters.iter().enumerate() {
            code.store(*place, index);
        }
        for (index, (parameter, _)) in parameters.iter().enumerate() {
            if let Some((boxes, taken)) = parameter.boxing() {
                code.load(taken, Base::Frame, index);
                code.call(boxes);
                code.store(RAX, index);
            }
        }
        code.put(&[0x48, 0xbf]); // mov rdi, …
        code.put(&ExecutorAddr::from_ptr(instance).value().to_le_bytes());
        code.put(&[0x48, 0x89, 0xe6, 0xba]); // mov rsi, rsp; mov edx, …
        code.number(parameters.len());
        code.put(&[0xff, 0x97]); // call [rdi + …]
        code.number(CodeInstance::<ExecutorAddr>::INVOKE_OFFSET);
        if let Some((unboxes, _)) = result.unboxing() {
            code.pass_result(RDI); // a boxed value
            code.call(unboxes);
        }
        code.end(parameters.len())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Call frame information: a common entry, then that of the trampoline.
    ///
    /// ```text
    ///   0  common entry: the frame lies 8 bytes above the stack pointer, and begins with the return address
    ///  24  entry: 28 back to 0, where the code begins, how long it is
    ///  41  after `push rbp`; after `mov rbp, rsp`; after `push rbx`; after `push r12`; at `ret`
    /// ```
    pub(super) fn frames(&self) -> [u8; 64] {
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

    fn begin(parameters: usize) -> Self {
        let mut code = Self(Self::BEGIN.to_vec());
        code.number(frame_bytes(parameters));
        code
    }

    fn end(mut self, parameters: usize) -> Self {
        self.put(&[0x48, 0x81, 0xc4]); // add rsp, …
        self.number(frame_bytes(parameters));
        self.put(&[0x41, 0x5c, 0x5b, 0x5d, 0xc3]); // pop r12; pop rbx; pop rbp; ret
        self
    }

    /// `mov rax, …; call rax`
    fn call(&mut self, function: u64) {
        self.put(&[0x48, 0xb8]);
        self.put(&function.to_le_bytes());
        self.put(&[0xff, 0xd0]);
    }

    /// Has what a call gave be what the next one takes: a float stays in `xmm0`.
    fn pass_result(&mut self, taken: Place) {
        if let Place::Integer { .. } = taken {
            self.put(&[0x48, 0x89, 0xc7]); // mov rdi, rax
        }
    }

    fn load(&mut self, into: Place, base: Base, index: usize) {
        self.move_word(into, base, index, [0x8b, 0x10]);
    }

    fn store(&mut self, from: Place, index: usize) {
        self.move_word(from, Base::Frame, index, [0x89, 0x11]);
    }

    /// `mov` or `movsd`, by their opcodes.
    fn move_word(&mut self, place: Place, base: Base, index: usize, [integer, float]: [u8; 2]) {
        let base = u8::from(matches!(base, Base::Arguments));
        let number = match place {
            Place::Integer { is_upper, number } => {
                self.put(&[0x48 | u8::from(is_upper) << 2 | base, integer]);
                number
            }
            Place::Float { number } => {
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

impl ValueType {
    /// The function that takes it out of a boxed value, and where that gives it.
    fn unboxing(self) -> Option<(u64, Place)> {
        match self {
            Self::Boxed => None,
            Self::Integer { unboxes, .. } => {
                Some((unboxes as extern "C-unwind" fn(BoxedValue) -> u64 as usize as u64, RAX))
            }
            Self::Float { unboxes, .. } => {
                Some((unboxes as extern "C-unwind" fn(BoxedValue) -> f64 as usize as u64, XMM0))
            }
        }
    }

    /// The function that makes a boxed value of it, and where that takes it.
    fn boxing(self) -> Option<(u64, Place)> {
        match self {
            Self::Boxed => None,
            Self::Integer { boxes, .. } => {
                Some((boxes as extern "C-unwind" fn(u64) -> BoxedValue as usize as u64, RDI))
            }
            Self::Float { boxes, .. } => {
                Some((boxes as extern "C-unwind" fn(f64) -> BoxedValue as usize as u64, XMM0))
            }
        }
    }
}
