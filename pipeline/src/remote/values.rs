//! [`CallArguments`] and [`CallResult`]: arguments and results of a call there, as values of registers. No compiler checks that both sides agree.
//!
//! C functions of all architectures that executors have take up to six integers, and up to eight floating-point numbers beside them, in registers of their own
//! kinds. A function does not look at registers that it has no parameters for.

use uruk_core::ExecutorAddr;

pub use crate::runtime::entry::CallRegisters;

/// A number that a function there takes or gives: an integer of up to 64 bits, a `bool`, a floating-point number, or an address there.
pub trait CallValue: Copy + sealed::Sealed {
    /// Whether it goes through a register for floating-point numbers.
    #[doc(hidden)]
    const IS_FLOAT: bool;
    #[doc(hidden)]
    fn to_register(self) -> u64;
    #[doc(hidden)]
    fn of_register(register: u64) -> Self;
}

/// The result of a function there: a [`CallValue`], or nothing.
pub trait CallResult: sealed::Sealed {
    #[doc(hidden)]
    fn of_registers(registers: CallRegisters) -> Self;
}

/// The arguments of a function there: a tuple of up to eight [`CallValue`]s, at most six of them integers, `bool`s or addresses; or an array of up to six
/// `u64`. A function with variable arguments takes an `f64` where C has a `float`.
///
/// More arguments do not compile:
/// ```compile_fail,E0080
/// # fn call(executor: &uruk_pipeline::remote::RemoteExecutor, function: uruk_core::ExecutorAddr) {
/// executor.call::<i32>(function, (1, 2, 3, 4, 5, 6, 7));
/// # }
/// # std::hint::black_box(call as fn(_, _));
/// ```
pub trait CallArguments: sealed::Sealed {
    #[doc(hidden)]
    fn registers(self) -> CallRegisters;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! call_value {
    ($($number:ty, $is_float:expr, $value:ident => $register:expr, $bits:ident => $of:expr;)*) => {$(
        impl sealed::Sealed for $number {}

        impl CallValue for $number {
            const IS_FLOAT: bool = $is_float;

            fn to_register(self) -> u64 {
                let $value = self;
                $register
            }

            fn of_register($bits: u64) -> Self {
                $of
            }
        }

        impl CallResult for $number {
            fn of_registers(registers: CallRegisters) -> Self {
                let CallRegisters { integers: [integer, ..], floats: [float, ..] } = registers;
                Self::of_register(if $is_float { float } else { integer })
            }
        }
    )*};
}

// A function may rely on a short integer being extended. The upper bits of a short result are undefined.
call_value! {
    i8, false, value => i64::from(value).cast_unsigned(), bits => bits as Self;
    i16, false, value => i64::from(value).cast_unsigned(), bits => bits as Self;
    i32, false, value => i64::from(value).cast_unsigned(), bits => bits as Self;
    i64, false, value => value.cast_unsigned(), bits => bits.cast_signed();
    isize, false, value => (value as i64).cast_unsigned(), bits => bits as Self;
    u8, false, value => value.into(), bits => bits as Self;
    u16, false, value => value.into(), bits => bits as Self;
    u32, false, value => value.into(), bits => bits as Self;
    u64, false, value => value, bits => bits;
    usize, false, value => value as u64, bits => bits as Self;
    bool, false, value => value.into(), bits => bits as u8 != 0;
    ExecutorAddr, false, value => value.value(), bits => Self::new(bits);
    f32, true, value => value.to_bits().into(), bits => Self::from_bits(bits as u32);
    f64, true, value => value.to_bits(), bits => Self::from_bits(bits);
}

impl CallResult for () {
    fn of_registers(_: CallRegisters) {}
}

impl<const COUNT: usize> sealed::Sealed for [u64; COUNT] {}

impl<const COUNT: usize> CallArguments for [u64; COUNT] {
    fn registers(self) -> CallRegisters {
        const { assert!(COUNT <= 6, "a call there takes up to six integers") };
        let mut registers = CallRegisters::default();
        registers.integers.iter_mut().zip(self).for_each(|(register, value)| *register = value);
        registers
    }
}

impl sealed::Sealed for () {}

impl CallArguments for () {
    fn registers(self) -> CallRegisters {
        CallRegisters::default()
    }
}

macro_rules! call_arguments {
    ($(($($kind:ident $value:ident)*))*) => {$(
        impl<$($kind: CallValue),*> sealed::Sealed for ($($kind,)*) {}

        impl<$($kind: CallValue),*> CallArguments for ($($kind,)*) {
            fn registers(self) -> CallRegisters {
                const { assert!(0 $(+ !$kind::IS_FLOAT as usize)* <= 6, "a call there takes up to six integers") };
                let ($($value,)*) = self;
                let mut registers = CallRegisters::default();
                let (mut integers, mut floats) = (registers.integers.iter_mut(), registers.floats.iter_mut());
                $(
                    let next = if $kind::IS_FLOAT { floats.next() } else { integers.next() };
                    next.into_iter().for_each(|register| *register = $value.to_register());
                )*
                registers
            }
        }
    )*};
}

call_arguments! {
    (A a) (A a B b) (A a B b C c) (A a B b C c D d) (A a B b C c D d E e) (A a B b C c D d E e F f)
    (A a B b C c D d E e F f G g) (A a B b C c D d E e F f G g H h)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_takes_the_next_register_of_its_kind() {
        let CallRegisters { integers, floats } = (-1_i8, 2.5_f64, true, 0.5_f32, 7_u32).registers();
        assert_eq!(integers, [u64::MAX, 1, 7, 0, 0, 0]);
        assert_eq!(floats[..3], [2.5_f64.to_bits(), u64::from(0.5_f32.to_bits()), 0]);
        assert_eq!([8, 9].registers().integers, [8, 9, 0, 0, 0, 0]);
    }

    #[test]
    fn a_result_is_what_its_type_has_of_a_register() {
        let mut registers = CallRegisters::default();
        registers.integers[0] = 0xffff_ff00_8000_00ff;
        registers.floats[0] = 0xffff_ffff_3f00_0000;
        assert_eq!(i8::of_registers(registers), -1);
        assert_eq!(i32::of_registers(registers), i32::MIN + 0xff);
        assert_eq!(u16::of_registers(registers), 0xff);
        assert!(bool::of_registers(registers));
        assert_eq!(f32::of_registers(registers), 0.5);
    }
}
