//! Stub.

use crate::error::{Error, Exit};
use std::ffi::OsString;

/// What a person typed.
pub fn command(args: &[OsString]) -> Result<Exit, Error> {
    let _ = args;
    todo!()
}
