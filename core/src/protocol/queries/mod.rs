//! What becomes of lookups that have not ended: they are told, and end.

mod end;
