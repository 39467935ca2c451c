//! The symbol protocol seen from outside, without LLVM.
