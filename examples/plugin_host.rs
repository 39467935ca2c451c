//! A host of plugins in C++: each has a dylib of its own, is initialised, called, removed with all that it began, and loaded anew.
//!
//! `cargo run --example plugin_host --no-default-features`; it needs a C++ compiler, `c++`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::process::Command;

use uruk::prelude::*;

/// A plugin as its author writes it: a static object with a constructor and a destructor, and one function.
const SOURCE: &str = r#"
    #include <cstdio>
    #include <string>
    #include <vector>
    static struct Log {
        std::vector<std::string> lines;
        Log() { lines.push_back("begun"); }
        ~Log() { std::printf("version %d ends after %zu lines\n", VERSION, lines.size()); std::fflush(stdout); }
    } log;
    extern "C" int call(int x) { log.lines.push_back("call"); return x * VERSION; }
"#;

/// Has the system's compiler make an object of it.
fn compile(version: u32) -> Result<ObjectBuffer, Box<dyn Error>> {
    let stem = std::env::temp_dir().join(format!("uruk-plugin-{}-{version}", std::process::id()));
    let (source, object) = (stem.with_extension("cpp"), stem.with_extension("o"));
    std::fs::write(&source, SOURCE)?;
    let mut compiler = Command::new("c++");
    compiler
        .args(["-O1", "-fPIC", "-c", &format!("-DVERSION={version}")])
        .arg(&source)
        .arg("-o")
        .arg(&object);
    let status = compiler.status()?;
    let bytes = std::fs::read(&object);
    let _ = (std::fs::remove_file(source), std::fs::remove_file(object));
    if !status.success() {
        return Err("the plugin does not compile".into());
    }
    Ok(ObjectBuffer::new(format!("plugin-{version}.o"), bytes?))
}

fn main() -> Result<(), Box<dyn Error>> {
    let jit = Jit::builder().threads(2).build()?;
    for version in 1..=3 {
        let plugin = jit.create_dylib(&format!("plugin {version}"))?;
        plugin.add_object(compile(version)?)?;
        // SAFETY: the constructors and destructors are those above.
        unsafe { plugin.initialize()? };
        // SAFETY: that is the function's signature, and no copy of the pointer outlives the handle.
        let call = unsafe { plugin.get::<extern "C" fn(i32) -> i32>("call")? };
        assert_eq!(call(14), 14 * version as i32);
        println!("version {version}: call(14) = {}", call(14));
        // The plugin's destructors run before its code goes.
        let unmapping = jit.remove_dylib(&plugin)?;
        drop(call);
        unmapping.wait()?;
    }
    Ok(())
}
