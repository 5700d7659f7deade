//! Providers as data: `resources/providers/NAME.json`. One structure is the egress allowlist, the field a cap clamps and the
//! names the usage reader reads. The upstream and its headers are built from this, never from a request.

use crate::catalog::fields::Added;
use serde::Deserialize;
use std::collections::BTreeMap;

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
    /// What sealed mode lets stand in the query: `name=value` exactly, `name=#` with a whole number, `name=*` with a word.
    #[serde(default)]
    pub query: Vec<String>,
}

/// What sealed mode lets stand in one request header.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Values {
    /// The header is a comma-separated list; else it is one value.
    pub list: bool,
    /// Values that pass.
    pub pass: Vec<String>,
    /// Values that pass with `--allow-server-tools`.
    #[serde(default)]
    pub server: Vec<String>,
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

/// A name of the Chat protocol's cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChatCap {
    /// OpenAI's own.
    MaxCompletionTokens,
    /// The older one, which most others know.
    MaxTokens,
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
    /// Other headers, lower case, in which clients of it send theirs; looked at where `auth_header` is absent. What goes upstream is
    /// always `auth_header`.
    #[serde(default)]
    pub token_also: Vec<(String, Scheme)>,
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
    /// Of some of these, the values that pass in sealed mode; another value is refused.
    #[serde(default)]
    pub header_values: BTreeMap<String, Values>,
    /// Names of models that search, run things or forward the call by themselves, in lower case; `*` at either end stands for anything.
    /// Sealed mode wants each of them named by `--allow-model`.
    #[serde(default)]
    pub hosted_models: Vec<String>,
    /// What sealed mode lets pass in a body beyond `resources/protocols`.
    #[serde(default)]
    pub fields: Added,
    /// The name under which a Chat call gets its cap where it has none.
    pub chat_cap: ChatCap,
    /// Response header names (lower case) that go back; a trailing `*` matches a prefix.
    pub response_headers: Vec<String>,
    /// `stream_options.include_usage` is forced for streamed Chat calls.
    pub include_usage: bool,
    /// `usage.cost` is money the provider charges.
    pub reports_cost: bool,
    /// Chat and Responses: its input count surely holds the cached tokens. Else they are charged beside it too, the dear reading.
    #[serde(default)]
    pub cached_inside: bool,
}

/// The shipped files, sorted by name.
const SHIPPED: [(&str, &str); 4] = [
    ("anthropic", include_str!("../../resources/providers/anthropic.json")),
    ("openai", include_str!("../../resources/providers/openai.json")),
    ("openai-compat", include_str!("../../resources/providers/openai-compat.json")),
    ("openrouter", include_str!("../../resources/providers/openrouter.json")),
];

/// Names of the shipped providers, sorted.
pub fn names() -> Vec<&'static str> {
    SHIPPED.iter().map(|(name, _)| *name).collect()
}

/// A shipped provider by name. A shipped file that does not read is `None`; a test reads them all.
pub fn shipped(name: &str) -> Option<Provider> {
    let (_, text) = SHIPPED.iter().find(|(n, _)| *n == name)?;
    serde_json::from_str(text).ok()
}

impl Provider {
    /// The route of a method and an exact path.
    pub fn route(&self, method: &str, path: &str) -> Option<&Route> {
        self.routes.iter().find(|r| r.method == method && r.path == path)
    }

    /// The protocol whose error bodies an agent of this provider reads: that of its first route.
    pub fn speaks(&self) -> Protocol {
        self.routes.first().map_or(Protocol::Chat, |r| r.protocol)
    }
}

#[cfg(test)]
mod tests {
    use super::{Protocol, names, shipped};

    #[test]
    fn shipped_files_read_and_hold_together() {
        let all = names();
        assert!(all.is_sorted());
        for name in all {
            let p = shipped(name).unwrap_or_else(|| panic!("{name} does not read"));
            assert_eq!(p.name, name);
            assert!(!p.routes.is_empty());
            for r in &p.routes {
                assert!(r.path.starts_with('/') && !r.path.contains(['?', '#', '%']), "{}", r.path);
                assert_eq!(r.method == "GET", r.protocol == Protocol::Plain, "{}", r.path);
            }
            let lower = |n: &String| !n.is_empty() && *n == n.to_ascii_lowercase();
            assert!(p.request_headers.iter().all(lower) && p.response_headers.iter().all(lower));
            assert!(p.header_values.keys().all(|n| p.request_headers.contains(n)), "{name}");
            // What carries credentials, or frames a message, is written by us alone.
            for never in [
                "authorization",
                "x-api-key",
                "api-key",
                "x-goog-api-key",
                "cookie",
                "proxy-authorization",
                "host",
                "connection",
                "content-length",
                "transfer-encoding",
                "content-type",
                "content-encoding",
                "accept-encoding",
                "expect",
                "te",
                "upgrade",
                "forwarded",
                "x-forwarded-for",
            ] {
                assert!(!p.request_headers.iter().any(|n| n == never), "{name} lets {never} through");
            }
            for never in
                ["set-cookie", "content-length", "transfer-encoding", "connection", "upgrade", "trailer", "*"]
            {
                assert!(!p.response_headers.iter().any(|n| n == never), "{name} lets {never} back");
            }
            assert_eq!(p.preflight.is_empty(), !p.key_required);
        }
    }

    /// TRAPS 81: OpenRouter answers `/models` to any key, so its preflight asks about the key itself. TRAPS 82: each provider's own prefix,
    /// on the preflight and on every route.
    #[test]
    fn trap_81_82_preflights_and_prefixes() {
        for (name, start, preflight) in [
            ("anthropic", "/v1/", "/v1/models"),
            ("openai", "/v1/", "/v1/models"),
            ("openrouter", "/api/v1/", "/api/v1/key"),
            ("openai-compat", "/v1/", ""),
        ] {
            let p = shipped(name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(p.preflight, preflight, "{name}");
            assert!(p.routes.iter().all(|r| r.path.starts_with(start)), "{name}");
            assert!(start.starts_with(&p.prefix), "{name}");
        }
    }

    /// TRAPS 56: one provider's path is never admitted under another, and only whole paths match.
    #[test]
    fn trap_56_routes_are_exact() {
        let p = shipped("openrouter").unwrap_or_else(|| panic!("openrouter"));
        assert!(p.route("POST", "/api/v1/chat/completions").is_some());
        for (method, path) in [
            ("POST", "/v1/chat/completions"),
            ("GET", "/api/v1/chat/completions"),
            ("POST", "/api/v1/chat/completions/"),
            ("POST", "/API/v1/chat/completions"),
            ("POST", "/api/v1/chat"),
            ("post", "/api/v1/chat/completions"),
        ] {
            assert!(p.route(method, path).is_none(), "{method} {path}");
        }
    }
}
