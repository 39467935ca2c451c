//! Memory is proportional to the live symbols. In a binary of its own: the memory of the whole process is read.

mod names;
mod units;
