//! What becomes of lookups that have not ended: they wait in the lists of rows, are told, and end.

mod lodge;
