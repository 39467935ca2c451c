//! Models of every protocol that more than one thread runs; empty unless built with --cfg uruk_loom.
