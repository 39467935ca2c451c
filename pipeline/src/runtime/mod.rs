//! What linked code needs from the process it lives in.
