//! The command line of a run, as typed: nothing in it is checked yet. `spec` makes a run of it.

use crate::relay::caps;

/// The command line of `sanduk run`, as typed.
#[derive(Default)]
pub struct Asked {
    /// The task given as an operand.
    pub task: Option<String>,
    /// `--task-file`.
    pub task_file: Option<String>,
    /// `-w`.
    pub workdir: Option<String>,
    /// `--mount`, repeated.
    pub mounts: Vec<String>,
    /// `--mask`, repeated.
    pub masks: Vec<String>,
    /// `-o`.
    pub report: Option<String>,
    /// `--stats-file`.
    pub stats_file: Option<String>,
    /// `--timeout`.
    pub timeout: Option<String>,
    /// `--agent`.
    pub agent: Option<String>,
    /// `--provider`.
    pub provider: Option<String>,
    /// `--model`.
    pub model: Option<String>,
    /// `--max-turns`.
    pub max_turns: Option<u64>,
    /// `--effort`.
    pub effort: Option<String>,
    /// `--permission-mode`.
    pub permission_mode: Option<String>,
    /// `--allowed-tools`.
    pub allowed_tools: Option<String>,
    /// `--bare`.
    pub bare: bool,
    /// `--mode`, or `sealed` for `--proxy`.
    pub mode: Option<String>,
    /// `--proxy`.
    pub proxy: bool,
    /// `--runtime`.
    pub runtime: Option<String>,
    /// `--allow-model`, repeated.
    pub allow_models: Vec<String>,
    /// `--max-tokens-cap`.
    pub max_tokens_cap: Option<u64>,
    /// `--budget` and the like.
    pub caps: caps::Asked,
    /// `--allow-server-tools`.
    pub allow_server_tools: bool,
    /// `--allow-field`, repeated.
    pub allow_fields: Vec<String>,
    /// `--upstream`.
    pub upstream: Option<String>,
    /// `--insecure-upstream`.
    pub insecure_upstream: bool,
    /// `--ca-file`.
    pub ca_file: Option<String>,
    /// `--tls`.
    pub tls: Option<String>,
    /// `--upstream-proxy`.
    pub upstream_proxy: Option<String>,
    /// `--upstream-proxy-auth`.
    pub upstream_proxy_auth: Option<String>,
    /// `--retry-for`.
    pub retry_for: Option<String>,
    /// `--key-file`.
    pub key_file: Option<String>,
    /// `--key-fd`.
    pub key_fd: Option<u64>,
    /// `--skip-key-check`.
    pub skip_key_check: bool,
    /// `--secret-env`, repeated.
    pub secret_env: Vec<String>,
    /// `--canary`.
    pub canary: bool,
    /// `--log-dir`.
    pub log_dir: Option<String>,
    /// `--log-bodies`.
    pub log_bodies: bool,
    /// `--no-report-instruction`.
    pub no_report_instruction: bool,
    /// `--dry-run`.
    pub dry_run: bool,
    /// `-q`.
    pub quiet: bool,
    /// `--keep`.
    pub keep: bool,
    /// `--image`.
    pub image: Option<String>,
    /// `--cpus`.
    pub cpus: Option<String>,
    /// `--memory`.
    pub memory: Option<String>,
    /// `--env`, repeated.
    pub env: Vec<String>,
    /// `--as-root`.
    pub as_root: bool,
    /// `--network`.
    pub network: Option<String>,
    /// `--base-url`.
    pub base_url: Option<String>,
}
