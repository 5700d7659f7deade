//! `--upstream-proxy`: an HTTP proxy through which openssl opens its tunnel. The proxy sees the provider's name and encrypted bytes, never
//! the key: openssl checks the provider's certificate inside the tunnel. Called by `upstream`, `pool`, `run/endpoint` and `main`.

use crate::error::Error;
use crate::limits;
use crate::relay::start::Proxy;
use crate::relay::upstream;
use crate::secret::Secret;
use crate::sys::file;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// The one variable that openssl gets, and only where the proxy wants a password.
pub const VARIABLE: &str = "SANDUK_PROXY_PASSWORD";

/// Reads `http://HOST:PORT`. Anything else is refused, credentials above all: a command line is readable by everybody. Exit 2.
pub fn parse(url: &str) -> Result<Proxy, Error> {
    let shown = if url.contains('@') { "an address with credentials" } else { url };
    let bad = |why: &str| {
        Error::wrong("use the proxy", shown, why).remedy("write --upstream-proxy http://HOST:PORT")
    };
    let Some(rest) = url.strip_prefix("http://") else {
        return Err(bad("it must start with http:// (TLS to a proxy is not spoken)"));
    };
    if rest.contains('@') {
        return Err(bad("credentials come from a file, --upstream-proxy-auth"));
    }
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    match upstream::place(rest) {
        Some((host, Some(port))) => Ok(Proxy { host, port, user: None }),
        Some((_, None)) => Err(bad("the port is missing")),
        None => Err(bad("the host or the port is malformed")),
    }
}

/// `user:password` from a file of the caller's, white space around it left out. The user's name is no secret to us: it will stand in
/// openssl's arguments. Exit 2.
pub fn credentials(path: &Path) -> Result<(String, Secret), Error> {
    let on = || path.display().to_string();
    let doing = "read the proxy's credentials from";
    #[expect(clippy::disallowed_methods, reason = "FILE-24 --upstream-proxy-auth")]
    let read = file::read_named(path, u64::try_from(limits::PROXY_AUTH_BYTES).unwrap_or(u64::MAX));
    let whole = Secret::new(read.map_err(|e| Error::wrong(doing, on(), e))?);
    #[expect(clippy::disallowed_methods, reason = "KEY-27 the proxy's password is cut from its file")]
    let text = whole.expose().trim_ascii();
    let split = text.iter().position(|b| *b == b':').map(|at| text.split_at(at));
    let (user, password) = split.map_or((&b""[..], &b""[..]), |(u, p)| (u, p.get(1..).unwrap_or_default()));
    let plain = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_graphic);
    if !plain(user) || !plain(password) || user.starts_with(b"-") {
        let why = "it must hold one line, user:password, of visible ASCII without white space";
        return Err(Error::wrong(doing, on(), why));
    }
    Ok((String::from_utf8_lossy(user).into_owned(), Secret::new(password.to_vec())))
}

/// openssl's whole environment.
pub fn environment(password: Option<&Secret>) -> Vec<(String, OsString)> {
    let Some(password) = password else { return Vec::new() };
    #[expect(clippy::disallowed_methods, reason = "KEY-28 the proxy's password into openssl's environment")]
    let bytes = password.expose().to_vec();
    vec![(VARIABLE.to_string(), OsString::from_vec(bytes))]
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn what_is_a_proxy() {
        for (url, host, port) in [
            ("http://proxy.test:3128", "proxy.test", 3128),
            ("http://PROXY:80/", "proxy", 80),
            ("http://[::1]:3128", "::1", 3128),
            ("http://192.0.2.1:8080", "192.0.2.1", 8080),
        ] {
            let got = parse(url);
            assert!(got.is_ok_and(|p| (p.host.as_str(), p.port) == (host, port)), "{url}");
        }
        for url in [
            "https://proxy.test:3128",
            "socks5://proxy.test:1080",
            "proxy.test:3128",
            "http://proxy.test",
            "http://user:secret@proxy.test:3128",
            "http://proxy.test:3128/path",
            "http://-proxy:1",
            "http://:3128",
            "http://proxy.test:0",
            "http://a b:1",
            "",
        ] {
            let why = parse(url).err().map(|e| e.to_string());
            assert!(why.is_some_and(|w| !w.contains("secret")), "{url}");
        }
    }
}
