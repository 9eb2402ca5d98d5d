//! What the unit tests of several folders use.

mod codes;
mod faults;
mod mem_listener;
mod warnings;

pub(crate) use codes::codes;
pub(crate) use faults::{faulty_keys, faulty_keys_with};
pub(crate) use mem_listener::{MemListener, mem_listener};
pub(crate) use warnings::{Warnings, listen};
