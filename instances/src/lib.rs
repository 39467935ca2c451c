#![doc = include_str!("../README.md")]

mod code_instance;
mod pointer;
mod restore;
mod table;
mod validity;
mod worlds;

pub use code_instance::{CodeInstance, CodeInstanceState, CodeSignature};
pub use pointer::CodePointer;
pub use restore::NotRestored;
pub use table::{
    CodeInstanceTable, EndedInstance, InstanceClaim, InstanceCompile, Redefinition, ValidityEnded,
};
pub use worlds::World;
