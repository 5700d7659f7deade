//! The relay as a command of its own (`sanduk relay --listen …`): the serving code of the role, confined too, with lines for
//! a person on standard error. Called by `main`.

use crate::catalog::providers::Provider;
use crate::error::{Error, Exit};
use crate::relay::start::{Grants, Upstream};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where the relay listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// `tcp:HOST:PORT`, an address and not a name; port 0: any, printed.
    Tcp(SocketAddr),
    /// `unix:PATH`, absolute or relative to the working directory.
    Unix(PathBuf),
}

/// What `sanduk relay` was told.
pub struct Foreground {
    /// `--listen`.
    pub listen: Listen,
    /// `--provider`.
    pub provider: Provider,
    /// From `upstream::parse_upstream`; `ca_file` set from `--ca-file`; addresses and openssl are filled in here.
    pub upstream: Upstream,
    /// `--token-file`: what a client presents as its key.
    pub token_file: PathBuf,
    /// `--key-file`; none: only where the provider needs no key.
    pub key_file: Option<PathBuf>,
    /// `--host`, as typed. The listening address is always admitted.
    pub hosts: Vec<String>,
    /// `--mode`, `--allow-model`, `--max-tokens-cap`.
    pub grants: Grants,
    /// `--log-dir`; none: no record is kept, said at the start.
    pub log_dir: Option<PathBuf>,
    /// `-q`: no line per call.
    pub quiet: bool,
}

/// Serves until a signal (`Exit::Signal`) or until policy ends it.
pub fn foreground(f: Foreground) -> Result<Exit, Error> {
    let _ = f.quiet;
    todo!()
}
