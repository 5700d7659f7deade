//! Providers as data: `resources/providers/NAME.json`. One structure is the egress allowlist, the field a cap clamps and the
//! names the usage reader reads. The upstream and its headers are built from this, never from a request.

use serde::Deserialize;

/// What a path speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Anthropic Messages.
    Messages,
    /// Anthropic token counting: the same fields, no generation.
    CountTokens,
    /// OpenAI Responses.
    Responses,
    /// OpenAI Chat Completions.
    Chat,
    /// A bodyless look-up.
    Plain,
}

/// One allowed call.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// `GET` or `POST`.
    pub method: String,
    /// Compared byte for byte with the target before its first `?`.
    pub path: String,
    /// What is spoken there.
    pub protocol: Protocol,
}

/// How the provider is given its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// The header's whole value.
    Bare,
    /// `Bearer KEY`.
    Bearer,
}

/// One provider.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    /// As given to `--provider`.
    pub name: String,
    /// `https://host` or `http://host:port`.
    pub upstream: String,
    /// Prefix an agent's base URL gets: `/v1`, or empty where the agent adds it.
    pub prefix: String,
    /// Lower-case name of the header that carries the credential.
    pub auth_header: String,
    /// How it carries it.
    pub auth_scheme: Scheme,
    /// Variable the host key is read from.
    pub key_variable: String,
    /// False where a run without any key is right (a local server).
    pub key_required: bool,
    /// GET path that tells a good key from a bad one; empty: none.
    pub preflight: String,
    /// Headers sent with the preflight.
    #[serde(default)]
    pub preflight_headers: Vec<(String, String)>,
    /// The allowlist.
    pub routes: Vec<Route>,
    /// Request header names (lower case) that go upstream; all others are dropped.
    pub request_headers: Vec<String>,
    /// Response header names (lower case) that go back; a trailing `*` matches a prefix.
    pub response_headers: Vec<String>,
    /// `stream_options.include_usage` is forced for streamed Chat calls.
    pub include_usage: bool,
    /// `usage.cost` is money the provider charges.
    pub reports_cost: bool,
}

/// Names of the shipped providers, sorted.
pub fn names() -> Vec<&'static str> {
    todo!()
}

/// A shipped provider by name.
pub fn shipped(name: &str) -> Option<Provider> {
    let _ = name;
    todo!()
}
