//! All questions to the tables of an image. The fuzz target asks them too.

use uruk_pipeline::image::{ImageReader, Rejection, Validation};

/// Asks everything that there is to ask.
pub(crate) fn ask(reader: &ImageReader) {
    reader.imports().for_each(drop);
    reader.units().for_each(drop);
    reader.packed().for_each(drop);
    reader.sections().for_each(drop);
    reader.below().for_each(drop);
    for instance in reader.instances().flatten() {
        reader.assumed_by(&instance).for_each(drop);
        reader.instance(instance.method, instance.specialization);
    }
    reader.instance(b"method", b"specialization");
    reader.assumptions().for_each(drop);
    let sources: Vec<_> = reader.sources().map(|source| (source.name, source.key)).collect();
    let mut validation = Validation::new(reader);
    validation.match_sources(reader, &sources);
    for unit in 0..reader.packed().len().min(100) as u32 {
        validation.foreign_of(reader, unit);
        let _ = validation.check(reader, unit, &|_| None);
    }
    for definition in ["first", "elsewhere"] {
        let closure = validation.closure_of(reader, definition);
        validation.reject_all(&closure, &Rejection::LeftOut);
    }
    validation.rejected().for_each(drop);
    for symbol in reader.symbols() {
        reader.lookup(symbol.name);
    }
    reader.lookup("visit");
    let _ = (reader.targets().count(), reader.flags(), reader.relocations(), reader.segments().len());
}
