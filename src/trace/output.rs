//! The file behind a trace: a list in JSON that is whole after every element.
//!
//! ```text
//!  [            ┐
//!  {…},         │ written once
//!  {…}          ┘
//!  ]            ◀── the next element overwrites it, and brings its own
//! ```
//!
//! Each element goes to the system in one call, so the list is whole however the process ends: by `exit`, by a signal, or by
//! `_exit`. An output that is no file, such as a pipe, cannot be overwritten: there the end of the list comes with [`Output::finish`].
//!
//! # Cost
//! A system call for each element, a microsecond or two.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;

/// See the module.
#[derive(Debug)]
pub(super) struct Output {
    /// None once the list is closed, or after a failed write.
    file: Option<File>,
    /// Where the end of the list is. None if the file cannot be overwritten.
    end: Option<u64>,
    error: Option<io::Error>,
    /// The text of one element. Kept for its memory.
    text: String,
}

const END: &str = "\n]\n";

impl Output {
    /// A list that begins with `first`.
    pub(super) fn new(file: File, first: fmt::Arguments<'_>) -> Self {
        let is_regular = file.metadata().is_ok_and(|metadata| metadata.is_file());
        let (end, text) = (is_regular.then_some(0), String::new());
        let mut output = Self { file: Some(file), end, error: None, text };
        output.put("[\n", first);
        output
    }

    /// Appends an element. A write that fails ends the trace.
    pub(super) fn push(&mut self, element: fmt::Arguments<'_>) {
        self.put(",\n", element);
    }

    /// Takes no more elements.
    ///
    /// # Errors
    /// The first write that has failed.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        if let (Some(mut file), None) = (self.file.take(), self.end) {
            file.write_all(END.as_bytes())?;
        }
        self.error.take().map_or(Ok(()), Err)
    }

    fn put(&mut self, separator: &str, element: fmt::Arguments<'_>) {
        let Some(file) = &mut self.file else { return };
        self.text.clear();
        self.text.push_str(separator);
        self.text.write_fmt(element).expect("a String takes everything");
        let element_bytes = self.text.len() as u64;
        let written = match &mut self.end {
            Some(end) => {
                self.text.push_str(END);
                let written = file.write_all_at(self.text.as_bytes(), *end);
                *end += element_bytes;
                written
            }
            None => file.write_all(self.text.as_bytes()),
        };
        if let Err(error) = written {
            self.file = None;
            self.error = Some(error);
        }
    }
}
