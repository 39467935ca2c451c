//! The `uruk` command: arguments in, a running program out.

mod args;
