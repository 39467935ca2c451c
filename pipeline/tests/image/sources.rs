//! Objects with everything that an image has to move, and images of them.

use uruk_core::SymbolFlags;
use uruk_instances::CodeSignature;
use uruk_pipeline::arch::ProcessorLevel;
use uruk_pipeline::image::{BuiltImage, BuiltInstance, BuiltUnit, HostParts, link_image, package};
use uruk_pipeline::link::LinkError;
use uruk_pipeline::object::ObjectBuffer;

use crate::link_support::{CC, Tool, compile};
use crate::running::{CATCHER, THROWER};

/// Data that points, calls in and out, constructors, a function that chooses its implementation, tables of jumps.
const POINTERS: &str = "
    #include <stdio.h>
    static int mine; int shown = 3; const char *text = \"text\"; int *chain[2] = {&mine, &shown};
    static const char *const names[] = {\"a\", \"b\", \"c\"};
    extern int sum(void); int (*const calls[])(void) = {sum};
    static int one(void) { return 1; }
    static void *choose(void) { return (void *)one; }
    int chosen(void) __attribute__((ifunc(\"choose\")));
    int (*chosen_pointer)(void) = chosen;
    extern int absent __attribute__((weak));
    __attribute__((constructor)) static void begin(void) { mine = 7; }
    __attribute__((destructor)) static void finish(void) { mine = 0; }
    int visit(int x) {
        switch (x) {
            case 0: return calls[0](); case 1: return mine; case 2: return names[x % 3][0];
            case 3: return chosen(); case 4: return puts(text); case 5: return &absent ? absent : 0;
            default: return *chain[x & 1];
        }
    }
";

/// Thread-local variables in every model that the object's flags ask for, and one of the C library.
const THREAD_LOCALS: &str = "
    #include <errno.h>
    __thread int exported = 4; static __thread int own = 5; static __thread long zero[8];
    int sum(void) { errno = 0; return exported + own + (int)zero[own & 7]; }
    int *address(int x) { return x ? &exported : &own; }
";

/// The objects of one program, for each of some choices of flags.
pub(crate) fn programs() -> Vec<Vec<ObjectBuffer>> {
    const FLAGS: [&[&str]; 4] = [
        &["-fPIC", "-O2"],
        &["-fPIC", "-O1", "-ffunction-sections", "-fdata-sections", "-fno-plt"],
        &["-fPIC", "-O1", "-mcmodel=large"],
        &["-fPIC", "-O2", "-mtls-dialect=gnu2", "-ftls-model=initial-exec"],
    ];
    FLAGS.iter().map(|flags| program(flags)).collect()
}

/// The objects of one program.
pub(crate) fn program(flags: &[&str]) -> Vec<ObjectBuffer> {
    let sources = [
        ("pointers.o", CC, "c", POINTERS),
        ("thread_locals.o", CC, "c", THREAD_LOCALS),
        ("thrower.o", Tool("c++"), "cpp", THROWER),
        ("catcher.o", Tool("c++"), "cpp", CATCHER),
    ];
    let object = |(name, tool, language, source): (&str, Tool, &str, &str)| {
        ObjectBuffer::new(name, compile(tool, language, source, flags))
    };
    sources.map(object).into()
}

/// Links an image whose imports are functions, as far as they are not called absent.
pub(crate) fn image(objects: &[ObjectBuffer], base: u64) -> Result<BuiltImage, LinkError> {
    let import = |name: &str| (name != "absent").then_some(SymbolFlags::EXPORTED | SymbolFlags::CALLABLE);
    link_image(objects, &|_| false, &import, &[ProcessorLevel::V1.into()], base)
}

/// The units of a program, in one file.
pub(crate) fn package_of(objects: &[ObjectBuffer]) -> BuiltImage {
    let import = |name: &str| (name != "absent").then_some(SymbolFlags::EXPORTED | SymbolFlags::CALLABLE);
    let units = objects.iter().map(|object| {
        let image =
            link_image(std::slice::from_ref(object), &|_| false, &import, &[ProcessorLevel::V1.into()], 0);
        let image = image.unwrap_or_else(|error| panic!("{error}"));
        let source = (object.name().as_ref().into(), [object.bytes().len() as u8; 32]);
        BuiltUnit::new(object.name().as_ref(), &image, vec![source], Vec::new())
    });
    let package = package(units.collect(), &ProcessorLevel::V1.into());
    package.with_host(host_parts(), |_| false).unwrap_or_else(|error| panic!("{error}"))
}

/// A few of each kind.
fn host_parts() -> HostParts {
    let mut parts = HostParts::default();
    for name in ["types", "source"] {
        parts.add_section(name.into(), name.repeat(20).into()).expect("the name is free");
    }
    parts.add_below("lower.uim".into(), [7; 16]);
    for specialization in 0..4_u8 {
        let instance = BuiltInstance::new("visit", [specialization], "visit")
            .specptr("sum", CodeSignature::Specialized)
            .assumes("sum", "", [specialization; 32])
            .assumes("visit", [specialization], [1; 32]);
        parts.add_instance(instance).expect("it is new");
    }
    parts
}
