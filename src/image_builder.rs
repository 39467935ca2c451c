//! [`ImageBuilder`]: files go in, an image comes out.

use std::fs::File;
use std::io::{self, Write as _};
use std::ops::Deref;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use uruk_core::sync::Arc;
use uruk_core::{LookupRequest, LookupSet, SymbolFlags};
use uruk_pipeline::arch::ProcessorLevel;
use uruk_pipeline::image::{ImageReader, link_image};
#[cfg(feature = "llvm")]
use uruk_pipeline::ir::{JitTargetMachineBuilder, TargetOptions};
use uruk_pipeline::linking::CollectedObjects;

use crate::builder::JitBuilder;
use crate::error::JitError;
use crate::jit::Jit;

/// Compiles and links files ahead, into an [`Image`] that any engine [loads](crate::Scope::load_image).
///
/// It is the [`Jit`] of a program that never runs: files are added to it by the methods of that. All of them take part, and members of
/// archives if something refers to them.
///
/// # Examples
/// See [`Scope::load_image`](crate::Scope::load_image).
pub struct ImageBuilder {
    jit: Jit,
    collected: Arc<CollectedObjects>,
    level: ProcessorLevel,
}

/// A linked image in memory.
#[derive(Clone, Debug)]
pub struct Image {
    bytes: Vec<u8>,
}

impl ImageBuilder {
    /// An image for the processors of the last fifteen years, x86-64-v2. `jit` says how files are compiled, on how many threads, and with
    /// which cache.
    ///
    /// # Errors
    /// As [`JitBuilder::build`].
    pub fn new(jit: JitBuilder) -> Result<Self, JitError> {
        Self::for_processors(ProcessorLevel::default(), jit)
    }

    /// An image for processors of a level. It does not run on others.
    ///
    /// # Errors
    /// As [`JitBuilder::build`].
    pub fn for_processors(level: ProcessorLevel, jit: JitBuilder) -> Result<Self, JitError> {
        #[cfg(feature = "llvm")]
        let jit = jit.target(target(level)?);
        let collected = Arc::<CollectedObjects>::default();
        let jit = jit.collect(collected.clone()).build()?;
        Ok(Self { jit, collected, level })
    }

    /// Compiles what was added, and links it as one. Nothing of it runs.
    ///
    /// # Errors
    /// [`JitError::Lookup`] for the first thing that is missing or fails, [`JitError::LinkImage`] for files that have to lie where they were
    /// built to lie.
    pub fn build(self) -> Result<Image, JitError> {
        self.jit.link_all()?;
        let (objects, discarded) = self.collected.take();
        let order = self.jit.dylib().link_order();
        let import = |name: &str| -> Option<SymbolFlags> {
            let wanted = LookupSet::one(self.jit.intern(name));
            let found = self.jit.session().lookup_flags(LookupRequest::new(&order, wanted)).ok()?;
            found.into_iter().next().map(|(_, flags)| flags)
        };
        let built = link_image(&objects, &|name| discarded.contains(name), &import, self.level, 0);
        Ok(Image { bytes: built.map_err(JitError::LinkImage)?.to_bytes() })
    }
}

impl Image {
    /// The bytes of its file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Writes it to a file, which is the old one or the new one at every moment. It is readable as the `umask` says, and its owner alone may
    /// write to it.
    ///
    /// # Errors
    /// [`JitError::WriteImage`].
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), JitError> {
        let path = path.as_ref();
        replace(path, &self.bytes)
            .map_err(|source| JitError::WriteImage { path: path.to_owned(), source: Arc::new(source) })
    }

    /// Its tables.
    ///
    /// # Errors
    /// [`JitError::Image`], which no image that was built here has.
    pub fn reader(&self) -> Result<ImageReader, JitError> {
        Ok(ImageReader::of_bytes(Path::new("image"), &self.bytes)?)
    }
}

/// The oldest processor of a level, with this machine's system.
#[cfg(feature = "llvm")]
fn target(level: ProcessorLevel) -> Result<JitTargetMachineBuilder, JitError> {
    let host = JitTargetMachineBuilder::host()?;
    let (cpu, features) = (level.name().into(), String::new());
    Ok(JitTargetMachineBuilder::new(TargetOptions { cpu, features, ..host.options().clone() })?)
}

/// Writes a file under another name, and gives it its own when it is whole.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let mut file = File::options().write(true).create_new(true).mode(0o644).open(&new)?;
    let written =
        file.write_all(bytes).and_then(|()| file.sync_data()).and_then(|()| std::fs::rename(&new, path));
    if written.is_err() {
        // The first error is the one that counts.
        let _ = std::fs::remove_file(&new);
    }
    written
}

impl Deref for ImageBuilder {
    type Target = Jit;

    /// The engine that files are added to.
    fn deref(&self) -> &Jit {
        &self.jit
    }
}

impl std::fmt::Debug for ImageBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImageBuilder").field("level", &self.level).finish_non_exhaustive()
    }
}
