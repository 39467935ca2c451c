//! JIT compile-orchestration engine: symbol queries, a work-stealing compile pool, and a JIT linker of its own.
