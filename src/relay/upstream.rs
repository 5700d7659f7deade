//! Where calls go: `--upstream` read strictly, names resolved, openssl found. All of it before confinement; nothing here is
//! ever taken from a request. Called by `run/spec`, `cli` and `relay/foreground`.

use crate::error::Error;
use crate::limits;
use crate::relay::proxy;
use crate::relay::start::Upstream;
use crate::relay::stunnel;
use crate::relay::tls;
use crate::sys::{exec, file, net};
use crate::wire::duration;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::Duration;

/// Reads `scheme://host[:port]`: nothing else may stand in it, because what comes after would either be dropped silently or choose
/// another host (`http://127.0.0.1:80@evil.test`). Plain http is for this machine only, unless `insecure`.
/// `addresses`, `ca_file` and `openssl` stay empty: see `prepare`. Errors: exit 2.
pub fn parse_upstream(url: &str, insecure: bool) -> Result<Upstream, Error> {
    let bad = |why: &str| Error::wrong("use the upstream", url, why);
    let (tls, rest) = match url.split_once("://") {
        Some(("https", rest)) => (true, rest),
        Some(("http", rest)) => (false, rest),
        _ => return Err(bad("it must start with https:// or http://")),
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains('@') {
        return Err(bad("it holds a user name; keys come by --key-file or the provider's variable"));
    }
    if rest.contains(['/', '?', '#', '\\']) {
        return Err(bad("only scheme, host and port may stand in it: paths come from the provider's table"));
    }
    let (host, port) = place(rest).ok_or_else(|| bad("the host or the port is malformed"))?;
    if !tls && !insecure && !is_loopback(&host) {
        return Err(bad("plain http to another machine shows the key to the network")
            .remedy("use https, or --insecure-upstream"));
    }
    let port = port.unwrap_or(if tls { 443 } else { 80 });
    Ok(Upstream { tls, host, port, retry_for: limits::RETRY_FOR, ..Upstream::default() })
}

/// Fills in what needs the world: addresses, and the path of openssl where TLS is spoken. Before confinement. Errors: exit 2.
pub fn prepare(upstream: &mut Upstream) -> Result<(), Error> {
    if let Some(stunnel) = &mut upstream.stunnel {
        return stunnel::check(stunnel);
    }
    let (host, port, remedy) = match &upstream.proxy {
        None => (&upstream.host, upstream.port, "check the network, or give --upstream"),
        Some(proxy) => (&proxy.host, proxy.port, "check --upstream-proxy"),
    };
    let on = format!("{host}:{port}");
    #[expect(
        clippy::disallowed_methods,
        reason = "NET-20 name of the upstream or its proxy, once, before confinement"
    )]
    let found = net::resolve(host.trim_end_matches('.'), port);
    upstream.addresses =
        found.map_err(|e| Error::wrong("find the address of", on.clone(), e).remedy(remedy))?;
    if upstream.addresses.is_empty() {
        return Err(Error::wrong("find the address of", on, "it has none"));
    }
    if upstream.tls {
        upstream.openssl = openssl()?;
    }
    if let Some(given) = &upstream.ca_file {
        // openssl runs in another directory and under rules made of real paths.
        #[expect(clippy::disallowed_methods, reason = "FILE-23 --ca-file as an absolute path")]
        let real = file::real_path(Path::new(given)).map_err(|e| Error::wrong("open", given.clone(), e))?;
        upstream.ca_file = Some(real.display().to_string());
    }
    // A name that no certificate can be checked against, or a relative CA file, is found now and not at the first call.
    for address in upstream.addresses.iter().filter(|_| upstream.tls) {
        tls::argv(upstream, *address).map_err(|e| Error::wrong("speak TLS to", upstream.host.clone(), e))?;
    }
    Ok(())
}

/// The system's openssl, from fixed directories: PATH does not choose what sees the key.
pub fn openssl() -> Result<String, Error> {
    let path = exec::find_fixed("openssl").ok_or_else(|| {
        Error::wrong("find", "openssl", "it is in none of the system's directories")
            .remedy("install openssl 3 (apt install openssl)")
    })?;
    let path = path.display().to_string();
    tls::check_openssl(&path).map_err(|why| Error::wrong("use", path.clone(), why))?;
    Ok(path)
}

/// `--retry-for`: a time, or 0 for never. Exit 2.
pub fn retry_for(text: Option<&str>) -> Result<Duration, Error> {
    let Some(text) = text else { return Ok(limits::RETRY_FOR) };
    if text.trim() == "0" {
        return Ok(Duration::ZERO);
    }
    let refused = |why: String| Error::wrong("take", format!("--retry-for {text}"), why);
    let time = duration::parse(text).map_err(refused)?;
    match time > limits::RETRY_FOR_MOST {
        true => Err(refused("it is longer than an hour".into())),
        false => Ok(time),
    }
}

/// How the upstream is reached: `--tls`, `--upstream-proxy`, `--ca-file`, `--retry-for`, as typed.
#[derive(Default)]
pub struct Ways<'a> {
    /// `--tls`.
    pub tls: Option<&'a str>,
    /// `--upstream-proxy`.
    pub proxy: Option<&'a str>,
    /// `--upstream-proxy-auth` was given.
    pub proxy_auth: bool,
    /// `--ca-file` was given.
    pub ca_file: bool,
    /// `--retry-for`.
    pub retry_for: Option<&'a str>,
}

/// Puts them into the upstream; what would have no effect is refused. Exit 2.
pub fn reach(upstream: &mut Upstream, ways: &Ways<'_>) -> Result<(), Error> {
    upstream.retry_for = retry_for(ways.retry_for)?;
    upstream.stunnel = ways.tls.map(stunnel::parse).transpose()?.flatten();
    upstream.proxy = ways.proxy.map(proxy::parse).transpose()?;
    let (plain, stunnel) = ("the upstream is plain http: the flag has no effect", upstream.stunnel.is_some());
    let theirs = "stunnel speaks TLS and connects: tell it in its own configuration";
    let refused = [
        (!upstream.tls && ways.tls.is_some(), "--tls", plain),
        (!upstream.tls && ways.ca_file, "--ca-file", plain),
        (!upstream.tls && ways.proxy.is_some(), "--upstream-proxy", "only https goes through a proxy"),
        (stunnel && ways.ca_file, "--ca-file with --tls stunnel", theirs),
        (stunnel && ways.proxy.is_some(), "--upstream-proxy with --tls stunnel", theirs),
        (ways.proxy_auth && ways.proxy.is_none(), "--upstream-proxy-auth", "there is no --upstream-proxy"),
        (
            ways.proxy.is_some() && upstream.host.contains(':'),
            "--upstream-proxy",
            "openssl cannot ask a proxy for an IPv6 address: give --upstream a name",
        ),
    ];
    match refused.into_iter().find(|(given, ..)| *given) {
        Some((_, flag, why)) => Err(Error::wrong("take", flag, why)),
        None => Ok(()),
    }
}

/// `host` or `host:port`, strictly; the host in the one spelling that is used from then on.
pub fn place(text: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = split_port(text)?;
    Some((host_name(host)?, port))
}

/// `host`, `host:port`, `[v6]`, `[v6]:port`; the brackets stay.
fn split_port(rest: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match rest.rsplit_once(':') {
        // The last colon of a bare bracketed address belongs to the address.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (rest, None),
    };
    match port {
        None => Some((host, None)),
        Some(p) if !p.is_empty() && p.len() <= 5 && p.bytes().all(|b| b.is_ascii_digit()) => {
            p.parse::<u16>().ok().filter(|n| *n != 0).map(|n| (host, Some(n)))
        }
        Some(_) => None,
    }
}

/// Lower case; an IPv6 address without its brackets and in its one spelling.
fn host_name(host: &str) -> Option<String> {
    if let Some(inner) = host.strip_prefix('[') {
        let address: Ipv6Addr = inner.strip_suffix(']')?.parse().ok()?;
        return Some(address.to_string());
    }
    // What looks like an IPv4 address must be one: `127.1` and `0x7f.1` are read differently by different resolvers.
    let numeric = host.rsplit('.').next().is_some_and(|last| {
        last.bytes().all(|b| b.is_ascii_digit()) || last.starts_with("0x") || last.starts_with("0X")
    });
    if numeric {
        let address: Ipv4Addr = host.parse().ok()?;
        return Some(address.to_string());
    }
    let label = |l: &str| {
        !l.is_empty()
            && l.len() <= 63
            && !l.starts_with('-')
            && !l.ends_with('-')
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    (host.len() <= 253 && host.split('.').all(label)).then(|| host.to_ascii_lowercase())
}

/// True for every spelling of this machine's loopback that `host_name` gives.
pub fn is_loopback(host: &str) -> bool {
    if host == "localhost" {
        return true;
    }
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(a)) => a.is_loopback(),
        Ok(IpAddr::V6(a)) => a.is_loopback() || a.to_ipv4_mapped().is_some_and(|a| a.is_loopback()),
        Err(_) => false,
    }
}

/// As it stands in a `Host` header: the port only where it is not the scheme's own, IPv6 in brackets.
pub fn host_value(upstream: &Upstream) -> String {
    let host =
        if upstream.host.contains(':') { format!("[{}]", upstream.host) } else { upstream.host.clone() };
    let own = if upstream.tls { 443 } else { 80 };
    if upstream.port == own { host } else { format!("{host}:{}", upstream.port) }
}

/// As a person writes it.
pub fn shown(upstream: &Upstream) -> String {
    format!("{}://{}", if upstream.tls { "https" } else { "http" }, host_value(upstream))
}

#[cfg(test)]
mod tests {
    use super::{host_value, parse_upstream, shown};

    /// TRAPS 88 and 89: what counts as loopback, and what is refused.
    #[test]
    fn trap_88_89_upstream_spellings() {
        for (url, shown_as) in [
            ("https://api.anthropic.com", "https://api.anthropic.com"),
            ("https://API.Anthropic.com/", "https://api.anthropic.com"),
            ("https://api.anthropic.com:443", "https://api.anthropic.com"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://127.255.0.1", "http://127.255.0.1"),
            ("http://localhost:1", "http://localhost:1"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("http://[0:0:0:0:0:0:0:1]", "http://[::1]"),
            ("http://[::ffff:127.0.0.1]:80", "http://[::ffff:127.0.0.1]"),
        ] {
            let got = parse_upstream(url, false);
            assert!(got.is_ok(), "{url}");
            if let Ok(u) = got {
                assert_eq!(shown(&u), shown_as);
                assert!(host_value(&u).len() >= 5);
            }
        }
        for url in [
            "http://127.0.0.1:80@evil.com",
            "https://u:p@x.test",
            "https://x?y=1",
            "https://x.test/path",
            "https://x.test#f",
            "http://evil.test",
            "http://127.0.0.1.evil.test",
            "http://0.0.0.0",
            "http://127.1",
            "http://0x7f.1",
            "http://2130706433",
            "ftp://x",
            "x.test",
            "https://",
            "https://:443",
            "https://x:",
            "https://x:0",
            "https://x:65536",
            "https://x:+1",
            "https://a..b",
            "https://-x",
            "https://[::1",
            "https://::1",
            "https://[::1]x",
            "https://x y",
            "https://x\\y",
            "HTTPS://x",
            "https://[fe80::1%eth0]",
            "https://\u{e9}.test",
            "https://x\n",
            "https:// x",
        ] {
            assert!(parse_upstream(url, false).is_err(), "{url:?}");
        }
        assert!(parse_upstream("http://evil.test", true).is_ok());
    }
}
