//! A package among the files of `uruk run`: it is loaded with those that are its sources.

use std::path::{Path, PathBuf};

use uruk::pipeline::image::ImageFile;
use uruk::pipeline::ir::OptimizationLevel;
use uruk::{ImageEvent, ImageOptions, Jit, JitError, LoadedImage};

use super::clang::SourceOptions;
use super::image::{processor, source};
use super::report;
use super::run::RunError;

/// Loads the package among `files`, if there is one, with those that are sources, and without the units in `left_out`. Gives the other files.
pub(super) fn load_package<'f>(
    jit: &Jit,
    files: &'f [PathBuf],
    left_out: &[String],
    options: SourceOptions<'_>,
) -> Result<(Option<LoadedImage>, Vec<&'f Path>), RunError> {
    let paths = files.iter().map(PathBuf::as_path);
    let Some(package) = paths.clone().find(|file| ImageFile::is_package(file)) else {
        let unit = left_out.first().cloned();
        return unit.map_or(Ok((None, paths.collect())), |unit| Err(RunError::NoPackage { unit }));
    };
    let image = ImageFile::open(package).map_err(JitError::from)?;
    let is_there = |unit: &&String| image.reader().packed().any(|packed| *packed.name == ***unit);
    if let Some(unit) = left_out.iter().find(|unit| !is_there(unit)) {
        return Err(RunError::NoUnit { unit: unit.clone(), image: package.to_owned() });
    }
    // The image is a tier: its sources are read as they were for that.
    let own = jit.tiers().and_then(|_| OptimizationLevel::ALL.get(usize::from(image.reader().level()?)));
    // Sources that take the place of units are compiled for this processor.
    let here = image.reader().target_here().map(|_| ());
    let processor = processor(image.reader()).filter(|_| here.is_ok());
    let options = SourceOptions { optimize: own.copied().unwrap_or(options.optimize), processor, ..options };
    let mut loaded = left_out.iter().fold(ImageOptions::new(), |options, unit| options.without(&**unit));
    let (mut others, mut has_sources) = (Vec::new(), false);
    // Those that it may have been built on.
    let lower: Vec<&Path> =
        paths.clone().take_while(|file| *file != package).filter(|file| ImageFile::is_image(file)).collect();
    for file in &lower {
        jit.load_image(file, ImageOptions::new())?;
    }
    for file in paths.filter(|file| *file != package && !lower.contains(file)) {
        match source(file, options)? {
            Some(source) => (loaded, has_sources) = (loaded.source(source), true),
            None => others.push(file),
        }
    }
    let name = package.display().to_string();
    if let Err(error) = here
        && has_sources
    {
        report::warning("the sources are compiled for this processor", &error);
    }
    let loaded = loaded.on_reject(move |event| report::warning(&name, &UnusedUnit(event.clone())));
    Ok((Some(jit.load_image(package, loaded)?), others))
}

/// A rejected unit, as the cause of a warning.
#[derive(Debug, thiserror::Error)]
#[error("{} is not used: {}", .0.unit, .0.reason)]
struct UnusedUnit(ImageEvent);
