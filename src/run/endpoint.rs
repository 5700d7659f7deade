//! Where model calls go: through the relay to the upstream, or in open mode straight from the box. Only reads what was typed. Called by
//! `spec`.

use crate::catalog::agents::Agent;
use crate::catalog::providers::Provider;
use crate::engine::plan::{self, Mode};
use crate::error::Error;
use crate::relay::proxy;
use crate::relay::start::Upstream;
use crate::relay::upstream::{self, Ways, is_loopback, parse_upstream, reach};
use crate::run::asked::Asked;
use crate::run::key::Key;
use crate::run::place;
use crate::run::spec::Spec;

/// The relay's upstream; in open mode only its host and scheme are used, for what is said of it.
pub fn upstream(
    asked: &Asked,
    provider: &Provider,
    mode: Mode,
    notes: &mut Vec<String>,
) -> Result<Upstream, Error> {
    let base = asked.base_url.as_deref().filter(|_| mode == Mode::Open);
    let url = base.map(|base| split(base).0).or(asked.upstream.as_deref()).unwrap_or(&provider.upstream);
    let mut upstream = parse_upstream(url, asked.insecure_upstream)?;
    if asked.insecure_upstream && upstream.tls {
        return Err(Error::wrong(
            "take",
            "--insecure-upstream",
            "the upstream is https: the flag has no effect",
        ));
    }
    if asked.insecure_upstream {
        notes.push(format!("--insecure-upstream: the key crosses the network to {} readable", upstream.host));
    }
    let ways = Ways {
        tls: asked.tls.as_deref(),
        proxy: asked.upstream_proxy.as_deref(),
        proxy_auth: asked.upstream_proxy_auth.is_some(),
        ca_file: asked.ca_file.is_some(),
        retry_for: asked.retry_for.as_deref(),
    };
    reach(&mut upstream, &ways)?;
    if let Some(path) = &asked.ca_file {
        upstream.ca_file = Some(place::for_the_relay(path)?.display().to_string());
    }
    if let Some(stunnel) = &upstream.stunnel {
        notes.push(format!(
            "--tls stunnel: who is at {} gets the key; the relay may connect to Unix sockets",
            stunnel.socket
        ));
    }
    Ok(upstream)
}

/// What needs the world: addresses, openssl or stunnel's socket, the proxy's password. The second value is that password with its key.
pub fn prepare(spec: &mut Spec, key: Key) -> Result<Key, Error> {
    upstream::prepare(&mut spec.upstream)?;
    if let Some(stunnel) = &spec.upstream.stunnel {
        place::relay_connects(&stunnel.socket)?;
    }
    let (Some(file), Some(proxy)) = (&spec.proxy_auth, &mut spec.upstream.proxy) else { return Ok(key) };
    let (user, password) = proxy::credentials(file)?;
    proxy.user = Some(user);
    Ok(key.with_password(password))
}

/// What the agent is pointed at in open mode: `--base-url`, or the upstream with the provider's prefix. `None` in the other modes:
/// the relay's address in the box.
pub fn base_url(
    asked: &Asked,
    provider: &Provider,
    agent: &Agent,
    upstream: &Upstream,
    mode: Mode,
) -> Result<Option<String>, Error> {
    if mode != Mode::Open {
        return Ok(None);
    }
    let prefix = asked.base_url.as_deref().map_or(provider.prefix.as_str(), |base| split(base).1);
    if prefix.contains(['?', '#', '\\']) || prefix.bytes().any(|b| !b.is_ascii_graphic()) {
        return Err(Error::wrong(
            "take",
            "--base-url",
            "only scheme, host, port and a plain path may stand in it",
        ));
    }
    if is_loopback(&upstream.host) {
        let why = "in open mode that is the box itself, not this host";
        return Err(Error::wrong("point the agent at", upstream.host.clone(), why)
            .remedy("use --mode sealed or key-safe, whose relay runs on this host"));
    }
    if upstream.tls && agent.program() == plan::BINARY {
        let why = "it has no TLS of its own and the provider is https";
        return Err(Error::wrong("start", format!("agent {} in open mode", agent.name), why)
            .remedy("use --mode sealed or key-safe: there the relay speaks TLS"));
    }
    let scheme = if upstream.tls { "https" } else { "http" };
    let host =
        if upstream.host.contains(':') { format!("[{}]", upstream.host) } else { upstream.host.clone() };
    Ok(Some(format!("{scheme}://{host}:{}{}", upstream.port, prefix.trim_end_matches('/'))))
}

/// `scheme://host[:port]`, and the path that follows.
fn split(url: &str) -> (&str, &str) {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..].find('/').map_or(url.len(), |at| start + at);
    url.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn a_url_is_cut_at_its_path() {
        assert_eq!(split("https://a.test:1/v1/x"), ("https://a.test:1", "/v1/x"));
        assert_eq!(split("https://a.test"), ("https://a.test", ""));
        assert_eq!(split("a/b"), ("a", "/b"));
        assert_eq!(split(""), ("", ""));
    }
}
