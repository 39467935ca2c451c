//! Code instances of images: their code is used where it is right, as if it had been compiled here.

use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;

use uruk_core::{ExecutorAddr, Readable, SymbolFlags};
use uruk_instances::{CodeInstance, CodeSignature, InstanceCompile, NotRestored, World};
use uruk_pipeline::image::{AssumedDefinition, ImageInstance, ImageReader, UnitKey};

use crate::error::JitError;
use crate::image::LoadedImage;
use crate::scope::Scope;

/// The host's definitions, as its [table](uruk_instances::CodeInstanceTable) and its images name them.
pub trait InstanceDefinitions<M, S> {
    /// The ids in the table of a method and a specialization that an image names. `None` if the host knows no such method: code that assumes
    /// its definition is not used.
    fn ids(&self, method: &[u8], specialization: &[u8]) -> Option<(M, S)>;

    /// The key of a definition in a world: the same one as in [`BuiltInstance::assumes`](uruk_pipeline::image::BuiltInstance::assumes), if it is
    /// the same definition. `None` if there is none.
    fn key(&self, method: M, specialization: S, world: World) -> Option<UnitKey>;
}

/// Why the code of an image is not used for an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InstanceRejection {
    /// It assumes a definition that is another one here, or none.
    Definition {
        /// The method, as the image names it.
        method: Box<[u8]>,
        /// The specialization, as the image names it.
        specialization: Box<[u8]>,
    },
    /// A definition that it assumes has changed since the instance was claimed.
    Ended,
    /// Its row in the image is damaged, or its functions are no code.
    Damaged,
}

/// The outcome of looking for an instance's code in an image.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "an instance that was not restored is to be compiled"]
pub enum InstanceOrigin {
    /// It has the image's code.
    Image,
    /// The image has no code for it.
    Absent,
    /// The image's code is not right here.
    Rejected(InstanceRejection),
}

impl Scope {
    /// Restores a new instance with the code that an image has for it, under the names `method` and `specialization`: for
    /// [`claim_or_restore`](uruk_instances::CodeInstanceTable::claim_or_restore). It is published as by the thread that compiles it.
    ///
    /// The assumptions of the code, direct ones and those of other instances of the image, are declared first, as by [`assume`](InstanceCompile::assume). Then `definitions` says whether each definition is, in the
    /// world of the claim, the one that the code was compiled with. From then on a redefinition ends the instance as any other. Nothing is
    /// restored by loading an image: each instance is looked at when it is claimed.
    ///
    /// The image is one that was loaded in this scope's dylib. Its code is there as long as the image is; an instance does not keep it.
    ///
    /// # Concurrency
    /// Callable from any thread. The first one brings the code, as a [lookup](Scope::lookup) does. `definitions` is asked without a lock.
    ///
    /// # Errors
    /// [`JitError::Lookup`] if the image was removed, or lacks something that it refers to. The instance is to be compiled then as well.
    ///
    /// # Cost
    /// One lookup of what is Ready, one lock of the table; for each definition that the code assumes, a probe of the image and two questions to
    /// `definitions`.
    ///
    /// # Examples
    /// `examples/image_instances` starts a small runtime without a compile.
    pub fn restore_instance<M, S>(
        &self,
        image: &LoadedImage,
        compile: &InstanceCompile<'_, M, S, ExecutorAddr>,
        method: &[u8],
        specialization: &[u8],
        definitions: &impl InstanceDefinitions<M, S>,
    ) -> Result<InstanceOrigin, JitError>
    where
        M: Copy + Eq + Hash,
        S: Copy + Eq + Hash,
    {
        let reader = image.reader();
        let Some(instance) = reader.instance(method, specialization) else {
            return Ok(InstanceOrigin::Absent);
        };
        let assumed = match assumptions(reader, instance) {
            Some(assumed) => assumed,
            None => return Ok(rejected(InstanceRejection::Damaged)),
        };
        let mut said = Vec::with_capacity(assumed.len());
        for definition in &assumed {
            match definitions.ids(definition.method, definition.specialization) {
                Some(ids) => said.push(ids),
                None => return Ok(rejected(other(definition))),
            }
        }
        let Some(code) = self.code_of(image, &instance)? else {
            return Ok(rejected(InstanceRejection::Damaged));
        };
        let mut changed = None;
        let holds = |world| {
            let is_other = |((method, specialization), assumed): &(&(M, S), &AssumedDefinition<'_>)| {
                definitions.key(*method, *specialization, world) != Some(assumed.key)
            };
            changed = said.iter().zip(&assumed).find(is_other).map(|(_, assumed)| other(assumed));
            changed.is_none()
        };
        let outcome = compile.restore(&said, holds, |unset| code.publish(unset));
        Ok(match (outcome, changed) {
            (Ok(()), _) => InstanceOrigin::Image,
            (Err(NotRestored::Ended(_)), _) | (Err(_), None) => rejected(InstanceRejection::Ended),
            (Err(_), Some(changed)) => rejected(changed),
        })
    }

    /// The code of an instance; `None` if one of its functions is none.
    fn code_of(
        &self,
        image: &LoadedImage,
        instance: &ImageInstance<'_>,
    ) -> Result<Option<InstanceCode>, JitError> {
        // The code of a whole image is in its place when that is Ready.
        let base = image.anchor().map(|anchor| self.lookup(anchor)).transpose()?;
        let address = |symbol: &str| -> Result<Option<ExecutorAddr>, JitError> {
            if let Some(own) = base.and_then(|base| image.function(symbol, base.address)) {
                return Ok(Some(own));
            }
            let found = self.lookup(symbol)?;
            let is_code = found.flags.contains(SymbolFlags::CALLABLE) && found.address != ExecutorAddr::NULL;
            Ok(is_code.then_some(found.address))
        };
        let Some(invoke) = address(instance.invoke)? else { return Ok(None) };
        let specptr = match instance.specptr {
            Some((symbol, signature)) => match address(symbol)? {
                Some(address) => Some((address, signature)),
                None => return Ok(None),
            },
            None => None,
        };
        Ok(Some(InstanceCode { invoke, specptr }))
    }
}

/// The pointers of an instance.
struct InstanceCode {
    invoke: ExecutorAddr,
    specptr: Option<(ExecutorAddr, CodeSignature)>,
}

impl InstanceCode {
    /// An instance that another thread has published has code, which is as right.
    fn publish(&self, instance: &CodeInstance<ExecutorAddr>) {
        let _ = match self.specptr {
            Some((specptr, signature)) => instance.publish(self.invoke, specptr, signature),
            None => instance.publish_invoke(self.invoke),
        };
    }
}

/// The assumptions of an instance, and those of the image's instances for these, and so on: its code contains theirs. `None` if a row is damaged.
fn assumptions<'i>(reader: &'i ImageReader, first: ImageInstance<'i>) -> Option<Vec<AssumedDefinition<'i>>> {
    let (mut found, mut known, mut open) = (Vec::new(), HashSet::new(), vec![first]);
    while let Some(instance) = open.pop() {
        for definition in reader.assumed_by(&instance) {
            let definition = definition?;
            // The same definition with another key is another assumption.
            if known.insert((definition.method, definition.specialization, definition.key)) {
                open.extend(reader.instance(definition.method, definition.specialization));
                found.push(definition);
            }
        }
    }
    Some(found)
}

fn rejected(reason: InstanceRejection) -> InstanceOrigin {
    InstanceOrigin::Rejected(reason)
}

fn other(definition: &AssumedDefinition<'_>) -> InstanceRejection {
    let AssumedDefinition { method, specialization, .. } = *definition;
    InstanceRejection::Definition { method: method.into(), specialization: specialization.into() }
}

/// The end of a sentence that begins with the instance.
impl fmt::Display for InstanceRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Definition { method, specialization } => {
                write!(f, "it assumes `{}`", Readable(&method.escape_ascii().to_string()))?;
                if !specialization.is_empty() {
                    write!(f, " for `{}`", specialization.escape_ascii())?;
                }
                f.write_str(" as it was, which is another one here")
            }
            Self::Ended => f.write_str("a definition that it assumes has changed meanwhile"),
            Self::Damaged => f.write_str("its row in the image is damaged"),
        }
    }
}
