#![doc = include_str!("../README.md")]

#[macro_use]
mod boundary;
mod cache;
mod callbacks;
mod dylib;
mod dylibs;
mod engine;
mod errors;
mod frames;
mod generators;
mod handles;
mod layers;
mod lazy;
mod lookups;
mod memory;
mod module;
mod modules;
mod names;
mod objects;
mod owned;
mod passes;
mod put_off;
mod responsibilities;
mod responsibility;
mod suspended;
mod symbols;
mod target;
mod transforms;
mod units;
