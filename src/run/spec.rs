//! What a run is: every flag and file it needs, checked once, valid ever after. Made by `from` before anything exists.

use crate::catalog::agents::Agent;
use crate::catalog::providers::{Protocol, Provider};
use crate::relay::start::{Grants, Upstream};
use std::path::PathBuf;
use std::time::Duration;

/// A directory of the host in the box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Absolute, links resolved, a directory.
    pub host: PathBuf,
    /// Absolute, normalised, not `/`, not at or below `/work`.
    pub dest: String,
    /// `:ro`.
    pub readonly: bool,
}

/// A run.
pub struct Spec {
    /// Not blank; the report instruction is not part of it.
    pub task: String,
    /// Append the instruction to write REPORT.md.
    pub report_instruction: bool,
    /// Absolute; made just before the box where missing.
    pub workdir: PathBuf,
    /// It has to be made.
    pub make_workdir: bool,
    /// `--mount`.
    pub mounts: Vec<Mount>,
    /// `--mask`: paths below the work directory, relative, no `..`; each exists.
    pub masks: Vec<String>,
    /// `-o`.
    pub report_to: Option<PathBuf>,
    /// `--stats-file`.
    pub stats_file: Option<PathBuf>,
    /// `--timeout`.
    pub timeout: Duration,
    /// `--model`.
    pub model: Option<String>,
    /// `--max-turns`.
    pub max_turns: Option<u32>,
    /// `--dry-run`.
    pub dry_run: bool,
    /// `-q`.
    pub quiet: bool,
    /// `--skip-key-check` was not given and the provider has a preflight.
    pub preflight: bool,
    /// The agent.
    pub agent: Agent,
    /// The provider.
    pub provider: Provider,
    /// What the two have in common.
    pub protocol: Protocol,
    /// Where calls go; `addresses` and `openssl` are filled in at the start.
    pub upstream: Upstream,
    /// Model policy.
    pub grants: Grants,
    /// `--log-dir`; none: beside the run's receipt.
    pub log_dir: Option<PathBuf>,
    /// Uid and gid of the box.
    pub user: (u32, u32),
    /// Absolute path of bwrap.
    pub engine: PathBuf,
}
