//! The dashboard, as a browser has it and as those who mean harm do.

mod browser;
mod client;
mod guests;
mod page;
mod recording;
