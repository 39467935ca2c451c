//! Programs that count what they execute: which runtime writes the profile.

use std::path::PathBuf;
use std::process::Command;

use uruk::Jit;
use uruk::core::{LookupRequest, LookupSet};
use uruk::pipeline::object::PROFILE_RUNTIME;

use super::clang;
use super::run::RunError;
use super::verbose;

/// Finds the runtime that writes the profile of an instrumented program: among the files of the program, or else clang's own. Without
/// one the program runs, and says that no profile is written.
pub(super) fn find_runtime(jit: &Jit) -> Result<(), RunError> {
    if is_defined(jit) {
        return Ok(());
    }
    match of_clang() {
        Some(archive) => Ok(jit.add_file(archive)?),
        None => {
            verbose::say(&format!(
                "the program was compiled to write a profile, and nothing defines `{PROFILE_RUNTIME}`: none is written; \
                 install libclang-rt-22-dev, or name clang's libclang_rt.profile as a file"
            ));
            Ok(())
        }
    }
}

fn is_defined(jit: &Jit) -> bool {
    let order = jit.main_dylib().link_order();
    let runtime = LookupSet::one(jit.intern(PROFILE_RUNTIME));
    jit.session().lookup_flags(LookupRequest::new(&order, runtime)).is_ok()
}

/// The archive that clang links.
fn of_clang() -> Option<PathBuf> {
    let clang = clang::found()?;
    let output = Command::new(clang).arg("-print-resource-dir").output().ok()?;
    let directory = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim_end()).join("lib");
    let places = ["linux/libclang_rt.profile-x86_64.a", "x86_64-unknown-linux-gnu/libclang_rt.profile.a"];
    places.iter().map(|place| directory.join(place)).find(|archive| archive.is_file())
}
