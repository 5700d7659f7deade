//! The environment: read once, at the start of `main`, before any thread; after that the program knows only this value.

use crate::secret::Secret;
use std::ffi::OsString;
use std::path::PathBuf;

/// Every variable the program reads, by name; nothing else of the environment is looked at.
pub struct Env {
    /// `HOME`.
    pub home: Option<PathBuf>,
    /// `XDG_STATE_HOME` where absolute, else `$HOME/.local/state`.
    pub state_home: Option<PathBuf>,
    /// `XDG_CONFIG_HOME` where absolute, else `$HOME/.config`.
    pub config_home: Option<PathBuf>,
    /// `CREDENTIALS_DIRECTORY` (systemd).
    pub credentials: Option<PathBuf>,
    /// `PATH`; a fixed default where unset.
    pub path: OsString,
    /// `NO_COLOR` set and not empty.
    pub no_color: bool,
    /// `TERM` is set and not `dumb`.
    pub terminal: bool,
}

/// Reads the list above.
pub fn read() -> Env {
    todo!()
}

/// Takes a variable's value and overwrites its bytes in place, so that `/proc/self/environ` no longer holds it. Only before the
/// first thread. White space around the value is dropped; empty: `None`. A closed function (`KEY-nn`).
pub fn take(name: &str) -> Option<Secret> {
    let _ = name;
    todo!()
}
