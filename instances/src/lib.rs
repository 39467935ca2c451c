#![doc = include_str!("../README.md")]

mod code_instance;
mod pointer;
mod table;
mod validity;
mod worlds;

pub use code_instance::{CodeInstance, CodeInstanceState, CodeSignature};
pub use pointer::CodePointer;
pub use table::{
    CodeInstanceTable, EndedInstance, InstanceClaim, InstanceCompile, Redefinition, ValidityEnded,
};
pub use worlds::World;
