//! Stub.

use crate::error::{Error, Exit};

/// The built-in agent: task on standard input, settings from the environment.
pub fn role() -> Result<Exit, Error> {
    todo!()
}
