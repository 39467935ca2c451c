//! Whole-program, relocation, fault and tidiness tests of Uruk.
