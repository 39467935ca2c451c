//! The models of core and dispatch, in one binary. Those of the pipeline include its files, which want a crate of their own.
#![cfg(uruk_loom)]

mod brief;
mod close;
mod code_instance;
mod deadline;
mod deadlock;
mod dependants;
mod emit;
mod event_thread;
mod fail;
mod future;
mod generate;
mod hold;
mod in_place;
mod invalidate;
mod lodge;
mod lookup;
mod on_caller;
mod overload;
mod pool;
mod publish;
mod ready;
mod recorder;
mod remove;
mod retry;
mod serial_queue;
mod shadow;
mod sleep;
mod symbol_name;
mod transaction;
mod transfer;
mod urgency;
mod withdraw;
