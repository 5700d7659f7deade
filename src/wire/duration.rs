//! Stub.

use std::time::Duration;

/// Stub.
pub fn parse(text: &str) -> Result<Duration, String> {
    let _ = text;
    todo!()
}
