//! Images: their bytes at every base, damaged files, and what a mapped one leaves in the process.

#[path = "../link_support/mod.rs"]
#[expect(dead_code, reason = "shared by the tests of the linker")]
mod link_support;
#[path = "../link_support/running.rs"]
#[expect(dead_code, reason = "shared by the tests of the linker")]
mod running;

mod ask;
mod bases;
mod damage;
mod sources;
mod validity;
