//! Programs that embed the engine, as their authors would write them: a module a theme.

mod endings;
mod support;
