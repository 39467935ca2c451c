//! The cost of files is in proportion to their size. In a binary of its own: its allocator counts.

use std::process::Command;

use allocation_counter::measure;
use uruk::Jit;
use uruk_pipeline::object::ObjectBuffer;

const VARIABLES: usize = 2000;

/// A file of a directory that goes with this.
struct Directory(std::path::PathBuf);

impl Directory {
    fn run(&self, program: &str, arguments: &[&str]) {
        let done = Command::new(program).args(arguments).current_dir(&self.0).status();
        assert!(done.expect("it starts").success(), "{program} {arguments:?}");
    }

    fn read(&self, name: &str) -> ObjectBuffer {
        ObjectBuffer::new(name, std::fs::read(self.0.join(name)).expect("it was written"))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The archive's member was read again for each variable that it might have given a value: 2,000 variables took 500 MB, and
/// as many seconds as fit into the square.
#[test]
fn a_member_with_many_variables_that_files_define_tentatively_is_read_once() {
    let directory = Directory(std::env::temp_dir().join(format!("uruk-proportion-{}", std::process::id())));
    std::fs::create_dir_all(&directory.0).expect("a temporary directory");
    let define = |definition: fn(usize) -> String| (0..VARIABLES).map(definition).collect::<String>();
    let tentative = define(|index| format!("int v{index};\n"));
    let weak = define(|index| format!("__attribute__((weak)) int v{index} = 1;\n"));
    for (name, source) in [("tentative", tentative), ("weak", weak)] {
        std::fs::write(directory.0.join(name).with_extension("c"), source).expect("it can be written");
    }
    directory.run("cc", &["-fPIC", "-fcommon", "-c", "tentative.c", "weak.c"]);
    directory.run("ar", &["rc", "libweak.a", "weak.o"]);
    let (object, archive) = (directory.read("tentative.o"), directory.read("libweak.a"));
    let bytes = object.size_bytes() + archive.size_bytes();
    for is_archive_first in [false, true] {
        let jit = Jit::builder().threads(0).build().expect("an engine for this machine");
        let add_object = || jit.add_object(object.clone()).expect("the names are free");
        let add_archive = || jit.add_archive(&archive).expect("it is whole");
        let used = measure(|| match is_archive_first {
            true => (add_archive(), add_object()).1,
            false => (add_object(), add_archive()).1,
        });
        assert!(used.bytes_total < 100 * bytes as u64, "{} bytes of heap for {bytes}", used.bytes_total);
    }
}
