//! Code instances in images: none is restored by a load, and each is looked at when it is claimed.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use uruk::core::sync::Mutex;
use uruk::core::{ExecutorAddr, WithCauses};
use uruk::instances::{CodeInstanceState, CodeInstanceTable, CodeSignature, InstanceClaim, World};
use uruk::pipeline::image::{BuiltInstance, HostPartError, UnitKey};
use uruk::{
    ImageBuilder, ImageOptions, InstanceDefinitions, InstanceOrigin, InstanceRejection, Jit, JitError,
    LoadedImage, Scope,
};

use crate::support::{c, engine};

type Table = CodeInstanceTable<u32, u8, ExecutorAddr>;

const CODE: &str = "long entry(void *instance, long *arguments, long count) { return arguments[0] + 1; } long code(long x) { return x + 1; }";
/// The only specialization.
const ONLY: u8 = 9;
/// Where code lies that was compiled here. Nothing runs it.
const COMPILED: ExecutorAddr = ExecutorAddr::new(0x1000);

/// A file that goes with the test.
struct ImageOnDisk(PathBuf);

impl ImageOnDisk {
    fn of(builder: ImageBuilder) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: only the numbers must differ.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("uruk-instances-{}-{number}.uim", std::process::id()));
        let image = builder.build().unwrap_or_else(|error| panic!("{}", WithCauses(&error)));
        image.write(&path).expect("the temporary directory is writable");
        Self(path)
    }

    /// Instances of methods, each of which assumes itself and `next` of it.
    fn with_methods(count: u32, is_package: bool, next: impl Fn(u32) -> u32) -> Self {
        let builder = builder(is_package);
        for method in 0..count {
            let instance = BuiltInstance::new(method.to_le_bytes(), [ONLY], "entry")
                .specptr("code", CodeSignature::Specialized)
                .assumes(method.to_le_bytes(), [ONLY], key(1))
                .assumes(next(method).to_le_bytes(), [ONLY], key(1));
            builder.instance(instance).expect("it is new");
        }
        Self::of(builder)
    }

    fn load(&self, scope: &Scope) -> LoadedImage {
        let loaded = scope.load_image(&self.0, ImageOptions::new());
        loaded.unwrap_or_else(|error| panic!("{}", WithCauses(&error)))
    }
}

impl Drop for ImageOnDisk {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn builder(is_package: bool) -> ImageBuilder {
    let builder = ImageBuilder::new(Jit::builder().threads(1)).expect("an engine for this machine");
    builder.add_object(c("code.o", CODE)).expect("the names are free");
    if is_package { builder.package() } else { builder }
}

fn key(version: u8) -> UnitKey {
    [version; 32]
}

/// A runtime whose methods are numbers, and their definitions versions.
struct Runtime {
    jit: Jit,
    image: LoadedImage,
    table: Table,
    /// Versions other than the first, from a world on.
    versions: Mutex<HashMap<u32, Vec<(World, u8)>>>,
    questions: AtomicU64,
}

impl InstanceDefinitions<u32, u8> for Runtime {
    fn ids(&self, method: &[u8], specialization: &[u8]) -> Option<(u32, u8)> {
        let [specialization] = *specialization else { return None };
        Some((u32::from_le_bytes(method.try_into().ok()?), specialization))
    }

    fn key(&self, method: u32, _: u8, world: World) -> Option<UnitKey> {
        // Relaxed: a count.
        self.questions.fetch_add(1, Ordering::Relaxed);
        let versions = self.versions.lock();
        let version = versions.get(&method).and_then(|known| known.iter().rfind(|(from, _)| *from <= world));
        Some(key(version.map_or(1, |(_, version)| *version)))
    }
}

impl Runtime {
    fn start(image: &ImageOnDisk) -> Self {
        let jit = engine(1);
        let image = image.load(&jit);
        Self { jit, image, table: Table::new(), versions: Mutex::default(), questions: AtomicU64::new(0) }
    }

    /// Claims the instance of a method for the current world; compiles it if the image has nothing for it.
    fn claim(&self, method: u32) -> Option<InstanceOrigin> {
        let mut origin = None;
        let claim = self.table.claim_or_restore(method, ONLY, self.table.world(), |compile| {
            let restored =
                self.jit.restore_instance(&self.image, compile, &method.to_le_bytes(), &[ONLY], self);
            origin = Some(restored.unwrap_or_else(|error| panic!("{}", WithCauses(&error))));
        });
        if let InstanceClaim::Compile(compile) = claim {
            compile.assume(method, ONLY).expect("it is not redefined meanwhile");
            compile.instance().publish_invoke(COMPILED).expect("it is unset");
        }
        origin
    }

    fn redefine(&self, method: u32, version: u8) -> Vec<u32> {
        let from = self.table.world().next();
        self.versions.lock().entry(method).or_default().push((from, version));
        let ended = self.table.redefine([method]).ended;
        let mut ended: Vec<u32> = ended.iter().map(|ended| ended.method).collect();
        ended.sort_unstable();
        ended
    }

    fn is_there(&self, method: u32) -> bool {
        self.table.get(method, ONLY, self.table.world()).is_some()
    }
}

fn of_other_definition(method: u32) -> InstanceOrigin {
    let method = method.to_le_bytes().into();
    let specialization = [ONLY].into();
    InstanceOrigin::Rejected(InstanceRejection::Definition { method, specialization })
}

#[test]
fn a_load_restores_none_of_ten_thousand_instances_and_a_first_use_looks_at_one() {
    const COUNT: u32 = 10_000;
    let image = ImageOnDisk::with_methods(COUNT, false, |method| method | 1);
    let runtime = Runtime::start(&image);
    assert_eq!(runtime.image.reader().instances().len(), COUNT as usize);
    let questions = || runtime.questions.load(Ordering::Relaxed); // Relaxed: this thread alone counts.
    assert!(
        questions() == 0 && !(0..COUNT).any(|method| runtime.is_there(method)),
        "a load restores nothing"
    );

    assert_eq!(runtime.claim(76), Some(InstanceOrigin::Image));
    assert_eq!(questions(), 2, "its own definition, and one more");
    assert_eq!((0..COUNT).filter(|method| runtime.is_there(*method)).count(), 1);
    let instance = runtime.table.get(76, ONLY, World::FIRST).expect("it was claimed");
    let CodeInstanceState::Specialized { invoke, specptr } = instance.read() else { panic!("{instance:?}") };
    // SAFETY: these are the functions of `CODE`, and the image stays.
    let (entry, code) = unsafe {
        let entry: extern "C" fn(usize, *const i64, i64) -> i64 = std::mem::transmute(invoke.to_ptr::<()>());
        let code: extern "C" fn(i64) -> i64 = std::mem::transmute(specptr.to_ptr::<()>());
        (entry, code)
    };
    assert_eq!((entry(0, &41, 1), code(42)), (42, 43));
    assert_eq!(runtime.claim(76), None, "it is there");

    assert!((1000..2000).all(|method| runtime.claim(method) == Some(InstanceOrigin::Image)));
    assert_eq!(runtime.claim(COUNT), Some(InstanceOrigin::Absent), "the image has none");
}

#[test]
fn a_redefinition_rejects_what_is_claimed_later_and_ends_what_was_restored() {
    for is_package in [false, true] {
        let image = ImageOnDisk::with_methods(20, is_package, |method| method + 1);
        let runtime = Runtime::start(&image);
        // Before: nothing of the image is in the table.
        assert!(runtime.redefine(5, 2).is_empty());
        for method in [5, 4, 1] {
            assert_eq!(runtime.claim(method), Some(of_other_definition(5)), "{method} contains code of 5");
        }
        for method in [6, 10, 11, 12, 13] {
            assert_eq!(runtime.claim(method), Some(InstanceOrigin::Image), "method {method}");
        }
        // After: what contains its code, through instances too that were not claimed. Those that were compiled anew do not.
        assert_eq!(runtime.redefine(12, 2), [6, 10, 11, 12]);
        assert_eq!(runtime.redefine(5, 3), [5]);
        assert!([1, 4, 13].into_iter().all(|method| runtime.is_there(method)));
        for method in [12, 11, 6] {
            assert!(!runtime.is_there(method));
            assert_eq!(runtime.claim(method), Some(of_other_definition(12)), "{method} contains code of 12");
        }
        // The first definition is back, and so is the image's code.
        assert_eq!(runtime.redefine(12, 1), [12]);
        assert_eq!(runtime.claim(12), Some(InstanceOrigin::Image));
    }
}

#[test]
fn an_instance_of_an_image_that_is_gone_is_compiled() {
    let image = ImageOnDisk::with_methods(3, false, |method| method);
    let mut runtime = Runtime::start(&image);
    let tracker = runtime.jit.create_dylib("other").expect("the name is free").create_tracker();
    let scope = runtime.jit.in_tracker(&tracker);
    let gone = image.load(&scope);
    tracker.remove().expect("nothing objects");
    runtime.image = gone;
    let restored = std::cell::RefCell::new(None);
    let claim = runtime.table.claim_or_restore(1, ONLY, World::FIRST, |compile| {
        let other = runtime.jit.in_dylib(scope.dylib());
        let outcome =
            other.restore_instance(&runtime.image, compile, &1_u32.to_le_bytes(), &[ONLY], &runtime);
        *restored.borrow_mut() = Some(outcome);
    });
    let outcome = restored.into_inner().expect("it is new");
    assert!(matches!(outcome, Err(JitError::Lookup(_))), "{outcome:?}");
    assert!(matches!(claim, InstanceClaim::Compile(_)));
}

#[test]
fn an_instance_has_functions_and_is_added_once() {
    let builder = builder(false);
    let missing = BuiltInstance::new("f", "", "entry").specptr("nowhere", CodeSignature::Boxed);
    builder.instance(missing.clone()).expect("it is new");
    let twice = builder.instance(missing).expect_err("there is one");
    assert!(matches!(twice, JitError::ImagePart(HostPartError::DuplicateInstance { .. })), "{twice}");
    let error = builder.build().expect_err("a function is missing");
    assert_eq!(error.to_string(), "nothing defines `nowhere`, a function of a code instance");
}
