//! Stub.

use crate::error::{Error, Exit};

/// The keeper role: order on standard input.
pub fn role() -> Result<Exit, Error> {
    todo!()
}
