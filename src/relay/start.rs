//! The relay role: takes its order, gives up what it does not need, serves. Started by the keeper for a run
//! (`sanduk relay-role`, order on standard input) or by a person (`sanduk relay --listen …`).

use serde::{Deserialize, Serialize};

/// What a relay is to do. Holds no secret: key and token come on a descriptor of their own.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// Name of a shipped provider.
    pub provider: String,
    /// Where it is.
    pub upstream: Upstream,
    /// Values a request's `Host` may have, lower case, with port where sent.
    pub hosts: Vec<String>,
    /// Only this uid may connect (Unix listener); none: any.
    pub peer_uid: Option<u32>,
    /// What is allowed.
    pub grants: Grants,
    /// Uid and gid to become when started as root; none: stay.
    pub become_uid: Option<(u32, u32)>,
    /// Descriptors handed over by the parent.
    pub fds: Fds,
    /// Ask the provider whether the key is good before serving.
    pub preflight: bool,
}

/// Descriptor numbers the role inherits; everything else is closed first thing.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fds {
    /// Listening socket.
    pub listener: i32,
    /// Pipe with the secrets: token, LF, key, end of file. Read once, then closed.
    pub secrets: i32,
    /// `calls.jsonl`, opened append-only.
    pub log: i32,
    /// Pipe on which `Note`s go to the asker, a JSON line each.
    pub notes: i32,
}

/// The resolved upstream.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// TLS by `openssl s_client`, else plain TCP.
    pub tls: bool,
    /// Name for Host, SNI and the certificate check; no port, IPv6 without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Addresses resolved before confinement, tried in order.
    pub addresses: Vec<std::net::SocketAddr>,
    /// `--ca-file`; none: the system's CA directory.
    pub ca_file: Option<String>,
    /// Absolute path of openssl (checked to be 3.x) where `tls`.
    pub openssl: String,
}

/// The model policy of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grants {
    /// `sealed` or `key-safe`.
    pub sealed: bool,
    /// Empty: any model.
    pub allow_models: Vec<String>,
    /// Upper bound for every field of a protocol that sets output length.
    pub max_tokens_cap: Option<u64>,
}

/// What the relay tells its asker, one JSON line each.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Note {
    /// Serving.
    Ready(Ready),
    /// It cannot serve: the key was refused, the upstream is unreachable…
    Refused(Stop),
    /// A call ended.
    Call(Call),
    /// A request was refused here.
    Denied(Denied),
    /// The run must end now: key seen in a request, key reflected, too many refusals, log not writable.
    End(Stop),
}

/// What confines the relay.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// Words for the receipt: `landlock-abi-4`, `seccomp`, `no-new-privs`…
    pub features: Vec<String>,
}

/// A reason to stop.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Stop {
    /// One line for a person.
    pub why: String,
    /// As `error::Exit::code`.
    pub exit: u8,
}

/// One call. Counters that were not reported are absent.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// `GET` or `POST`.
    pub method: String,
    /// Without the query.
    pub path: String,
    /// What the client got.
    pub status: u16,
    /// From the request's last byte to the answer's last.
    pub millis: u64,
    /// The model asked for.
    pub model: Option<String>,
    /// See `usage::Usage`.
    pub input: Option<u64>,
    /// See `usage::Usage`.
    pub cache_read: Option<u64>,
    /// See `usage::Usage`.
    pub cache_write: Option<u64>,
    /// See `usage::Usage`.
    pub output: Option<u64>,
    /// Dollars, where the server reports them.
    pub cost: Option<f64>,
    /// It is charged, whether or not it said how much.
    pub owed: bool,
    /// Fields that were clamped, as in the log.
    pub clamped: Vec<String>,
}

/// One refusal.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Denied {
    /// As sent, escaped and cut.
    pub method: String,
    /// As sent, escaped and cut.
    pub path: String,
    /// What the client got.
    pub status: u16,
    /// One clause.
    pub why: String,
    /// The flag that lifts it, or empty.
    pub remedy: String,
}

/// The relay role of a run: order on standard input.
pub fn role() -> Result<crate::error::Exit, crate::error::Error> {
    todo!()
}
