//! Stub.

use crate::error::{Error, Exit};

/// The role of PID 1 in the box; `dir` holds `control.sock`.
pub fn role(dir: &std::path::Path) -> Result<Exit, Error> {
    let _ = dir;
    todo!()
}
