//! The environment: read once, at the start of `main`, before any thread; after that the program knows only this value.

use crate::secret::Secret;
use crate::sys::raw;
use std::ffi::{CString, OsString};
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
    /// `DOCKER_HOST`.
    pub docker_host: Option<String>,
    /// `DOCKER_CONTEXT`.
    pub docker_context: Option<String>,
    /// `DOCKER_CONFIG`.
    pub docker_config: Option<PathBuf>,
}

/// Where programs are looked for when `PATH` is not set.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Their names.
const READ: [&str; 10] = [
    "HOME",
    "XDG_STATE_HOME",
    "XDG_CONFIG_HOME",
    "CREDENTIALS_DIRECTORY",
    "PATH",
    "NO_COLOR",
    "TERM",
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "DOCKER_CONFIG",
];

/// `read` looks at this variable.
pub fn reads(name: &str) -> bool {
    READ.contains(&name)
}

/// Reads the list above.
pub fn read() -> Env {
    let home = absolute("HOME");
    let below_home = |rest: &str| home.as_ref().map(|h| h.join(rest));
    Env {
        state_home: absolute("XDG_STATE_HOME").or_else(|| below_home(".local/state")),
        config_home: absolute("XDG_CONFIG_HOME").or_else(|| below_home(".config")),
        credentials: absolute("CREDENTIALS_DIRECTORY"),
        path: look("PATH").unwrap_or_else(|| DEFAULT_PATH.into()),
        no_color: look("NO_COLOR").is_some(),
        terminal: look("TERM").is_some_and(|t| t != "dumb"),
        docker_host: text("DOCKER_HOST"),
        docker_context: text("DOCKER_CONTEXT"),
        docker_config: absolute("DOCKER_CONFIG"),
        home,
    }
}

/// A variable that is set and not empty.
fn look(name: &str) -> Option<OsString> {
    #[expect(clippy::disallowed_methods, reason = "ENV-01 the variables listed in Env, read once by main")]
    let value = std::env::var_os(name);
    value.filter(|v| !v.is_empty())
}

/// A variable as text; what is not UTF-8 is shown as such and then names nothing.
fn text(name: &str) -> Option<String> {
    look(name).map(|value| value.to_string_lossy().into_owned())
}

/// A variable that is an absolute path; a relative one counts as not set (XDG Base Directory, "must be absolute").
fn absolute(name: &str) -> Option<PathBuf> {
    look(name).map(PathBuf::from).filter(|p| p.is_absolute())
}

/// Takes a variable's value and overwrites its bytes in place, so that `/proc/self/environ` no longer holds it. Only before the
/// first thread. White space around the value is dropped; empty: `None`. A closed function (`KEY-nn`).
pub fn take(name: &str) -> Option<Secret> {
    let mut value = raw::take_variable(&CString::new(name).ok()?)?;
    let kept = value.trim_ascii();
    let (end, length) = (value.trim_ascii_end().len(), kept.len());
    // Moved within the one buffer: a second buffer would leave a copy that nobody wipes.
    value.copy_within(end - length..end, 0);
    value[length..].fill(0);
    value.truncate(length);
    let secret = Secret::new(value);
    if secret.is_empty() { None } else { Some(secret) }
}

/// What the operator gave the agent by `--env`: the environment without what this program reads itself. For mini's tools, in the box.
pub fn others() -> Vec<(String, OsString)> {
    #[expect(clippy::disallowed_methods, reason = "ENV-03 in the box: what the operator gave the agent")]
    let all = std::env::vars_os();
    let others = all.filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    let own = |name: &str| MINI.contains(&name) || ["PATH", "HOME", "LANG", "TERM"].contains(&name);
    others.filter(|(name, _)| !own(name)).collect()
}

/// What a turn tells the built-in agent (`inside/mini`), and nobody else reads.
const MINI: [&str; 6] = [
    "SANDUK_MINI_PROTOCOL",
    "SANDUK_MINI_BASE_URL",
    "SANDUK_MINI_TOKEN",
    "SANDUK_MINI_MODEL",
    "SANDUK_MINI_MAX_TURNS",
    "SANDUK_MINI_PROFILE",
];

/// Those of the list above that are set and UTF-8. The token among them is worthless outside the box it was made for.
pub fn mini() -> Vec<(&'static str, String)> {
    MINI.into_iter().filter_map(|name| Some((name, look(name)?.into_string().ok()?))).collect()
}
