//! The label of a task.

use std::fmt;

use crate::SymbolName;
use crate::sync::Arc;

/// The name of a task.
#[derive(Clone)]
pub struct TaskLabel(LabelText);

#[derive(Clone)]
enum LabelText {
    Static(&'static str),
    Shared(Arc<str>),
    Name(SymbolName),
}

impl From<&'static str> for TaskLabel {
    fn from(text: &'static str) -> Self {
        Self(LabelText::Static(text))
    }
}

impl From<Arc<str>> for TaskLabel {
    fn from(text: Arc<str>) -> Self {
        Self(LabelText::Shared(text))
    }
}

impl From<String> for TaskLabel {
    fn from(text: String) -> Self {
        Self(LabelText::Shared(text.into()))
    }
}

impl From<SymbolName> for TaskLabel {
    fn from(name: SymbolName) -> Self {
        Self(LabelText::Name(name))
    }
}

impl TaskLabel {
    /// The text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            LabelText::Static(text) => text,
            LabelText::Shared(text) => text,
            LabelText::Name(name) => name.as_str(),
        }
    }
}

impl fmt::Debug for TaskLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for TaskLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
