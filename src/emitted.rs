//! [`ImageBuilder::emit`]: what an image would be made of, as files for other tools.

use std::path::Path;

use uruk_pipeline::ir::ListingForm;
use uruk_pipeline::object::{ObjectBuffer, archive_of_parts, parts, with_names_of_module};

use crate::error::JitError;
use crate::image_builder::{ImageBuilder, write};

/// A form of [`ImageBuilder::emit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmitForm {
    /// Relocatable objects, position-independent, for a linker.
    Objects,
    /// Assembly of the optimized modules.
    Assembly,
    /// Bitcode of the optimized modules.
    Bitcode,
}

/// The parts of an image in link order: an object, or an assembly or bitcode file, for each file that was added, or for each part of
/// those that were divided.
#[derive(Clone, Debug)]
pub struct Emitted {
    form: EmitForm,
    members: Vec<Vec<u8>>,
}

impl ImageBuilder {
    /// Compiles what was added as [`build`](Self::build) does, and gives that instead of linking it.
    ///
    /// Definitions that lose against others, such as inline functions of several files, are weak or in groups, as a linker has it. Names that
    /// parts of a module share are hidden.
    ///
    /// # Errors
    /// As [`build`](Self::build). [`JitError::Emit`] for [`Assembly`](EmitForm::Assembly) and [`Bitcode`](EmitForm::Bitcode) of a file that is an object, or
    /// whose object came from a cache; and if several files are divided, because their names could meet.
    ///
    /// # Cost
    /// That of compiling. For assembly code is generated twice.
    ///
    /// # Examples
    /// ```
    /// # #[cfg(not(feature = "llvm"))]
    /// # fn main() {}
    /// # #[cfg(feature = "llvm")]
    /// # fn main() -> Result<(), uruk::JitError> {
    /// use uruk::{EmitForm, ImageBuilder, Jit};
    ///
    /// let builder = ImageBuilder::new(Jit::builder().threads(1))?;
    /// builder.add_ir_text("next.ll", "define i64 @next(i64 %x) { %y = add i64 %x, 1 ret i64 %y }")?;
    /// let assembly = builder.emit(EmitForm::Assembly)?;
    /// assert!(String::from_utf8_lossy(&assembly.to_bytes()).contains("next:"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn emit(self, form: EmitForm) -> Result<Emitted, JitError> {
        let listing = self.ir_layer().compiler().listing().clone();
        match form {
            EmitForm::Objects => {}
            EmitForm::Assembly => listing.want(ListingForm::Assembly),
            EmitForm::Bitcode => listing.want(ListingForm::Bitcode),
        }
        let objects = self.link_and_take()?;
        let mut members = Vec::new();
        let mut divided = 0;
        for (number, object) in objects.iter().enumerate() {
            let of_module = match form {
                EmitForm::Objects => parts_of(object, number)?,
                EmitForm::Assembly | EmitForm::Bitcode => listing
                    .take(object.name())
                    .ok_or_else(|| {
                        refused(object, "it is an object, or came from a cache, and has no modules")
                    })?
                    .map_err(JitError::Compile)?,
            };
            divided += usize::from(of_module.len() > 1);
            members.extend(of_module);
        }
        match objects.first().filter(|_| divided > 1 && form != EmitForm::Objects) {
            Some(first) => {
                Err(refused(first, "it and other files are divided, and names of their parts could meet"))
            }
            None => Ok(Emitted { form, members }),
        }
    }
}

fn parts_of(object: &ObjectBuffer, number: usize) -> Result<Vec<Vec<u8>>, JitError> {
    let Some(parts) = parts(object) else { return Ok(vec![object.bytes().to_vec()]) };
    let parts = parts.map_err(|error| refused(object, &error.to_string()))?;
    Ok(parts.into_iter().map(|part| with_names_of_module(part, number)).collect())
}

fn refused(object: &ObjectBuffer, why: &str) -> JitError {
    JitError::Emit { file: (&**object.name()).into(), why: why.into() }
}

impl Emitted {
    /// The files.
    pub fn members(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.members.iter().map(Vec::as_slice)
    }

    /// One file of them: the only one, or an archive in which they are called by their numbers.
    pub fn to_bytes(&self) -> Vec<u8> {
        match &self.members[..] {
            [only] => only.clone(),
            members => archive_of_parts(self.form.extension(), members.iter().map(Vec::as_slice)),
        }
    }

    /// Writes that, as [`Image::write`](crate::Image::write) does.
    ///
    /// # Errors
    /// [`JitError::WriteImage`].
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), JitError> {
        write(path.as_ref(), &self.to_bytes())
    }
}

impl EmitForm {
    /// The usual end of names of such files.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Objects => "o",
            Self::Assembly => "s",
            Self::Bitcode => "bc",
        }
    }
}
