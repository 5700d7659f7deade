//! The one pipe by which a relay gets what it must keep: token, key, and the host's secrets that may not leave. Written by `run`
//! (`key`), read once by the role (`start`).
//!
//! Token, LF, key; then for each secret LF, its name, a space, its length in decimal digits, LF, its bytes; end of file. Token and key
//! hold no LF, a name is one word. The name `PASSWORD` is the proxy's.

use crate::error::Error;
use crate::limits;
use crate::relay::search::Named;
use crate::secret::Secret;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;

/// What came out of the pipe.
pub struct Secrets {
    /// What the box presents as its key.
    pub token: Secret,
    /// What the provider gets instead.
    pub key: Secret,
    /// What else may not leave.
    pub named: Vec<Named>,
    /// Of the proxy on the way to the provider.
    pub password: Option<Secret>,
}

/// Stands where a secret has its name; no variable is called so.
pub const PASSWORD: &str = "-";

/// The line before the bytes of a secret.
pub fn line(name: &str, value: &Secret) -> String {
    format!("\n{name} {}\n", value.len())
}

/// Reads all of it. The whole is wiped, whatever becomes of it.
pub fn read(fd: OwnedFd) -> Result<Secrets, Error> {
    // Room for all of it from the start, so that no half-read copy stays behind in freed memory.
    let mut whole = Vec::with_capacity(limits::SECRETS_PIPE.saturating_add(1));
    let most = u64::try_from(limits::SECRETS_PIPE).unwrap_or(u64::MAX);
    let read = File::from(fd).take(most).read_to_end(&mut whole);
    let whole = Secret::new(whole);
    let bad = |why: &str| Error::fault("read", "the relay's secrets", why);
    read.map_err(|e| bad(&e.to_string()))?;
    #[expect(clippy::disallowed_methods, reason = "KEY-21 token, key and secrets are told apart")]
    let bytes = whole.expose();
    parse(bytes).map_err(bad)
}

fn parse(bytes: &[u8]) -> Result<Secrets, &'static str> {
    let (token, rest) = line_end(bytes).ok_or("there is no line end after the token")?;
    if token.is_empty() {
        return Err("the token is empty");
    }
    let (key, mut rest) = line_end(rest).map_or((rest, None), |(key, rest)| (key, Some(rest)));
    let (mut named, mut password) = (Vec::new(), None);
    while let Some(from) = rest {
        let (head, from) = line_end(from).ok_or("a secret has no name")?;
        let head = std::str::from_utf8(head).map_err(|_| "a secret's name is not UTF-8")?;
        let (name, length) = head.rsplit_once(' ').ok_or("a secret has no length")?;
        let length = length.parse::<usize>().map_err(|_| "a secret's length is no number")?;
        let (value, behind) = from.split_at_checked(length).ok_or("a secret is cut off")?;
        let value = Secret::new(value.to_vec());
        match name {
            PASSWORD => password = Some(value),
            name => named.push(Named { name: name.into(), value }),
        }
        rest = match behind.split_first() {
            None => None,
            Some((b'\n', next)) => Some(next),
            Some(_) => return Err("a secret is longer than it says"),
        };
    }
    Ok(Secrets { token: Secret::new(token.to_vec()), key: Secret::new(key.to_vec()), named, password })
}

/// What stands before the first line end, and what behind.
fn line_end(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|b| *b == b'\n')?;
    Some((bytes.get(..at)?, bytes.get(at.saturating_add(1)..)?))
}

#[cfg(test)]
mod tests {
    use super::{Named, Secrets, line, parse};
    use crate::secret::Secret;

    fn shown(got: Result<Secrets, &'static str>) -> Result<Vec<(String, Vec<u8>)>, &'static str> {
        #[expect(clippy::disallowed_methods, reason = "KEY-22 unit test")]
        let bytes = |s: &Secret| s.expose().to_vec();
        let s = got?;
        let mut all = vec![("token".into(), bytes(&s.token)), ("key".into(), bytes(&s.key))];
        all.extend(s.named.iter().map(|n| (n.name.clone(), bytes(&n.value))));
        Ok(all)
    }

    #[test]
    fn what_is_written_is_read() {
        let values: [&[u8]; 3] = [b"0123456789abcdef", b"-----BEGIN\nX 5\n\n-----", b"\xFF\x00\n"];
        let mut text = b"TOKEN\nkey".to_vec();
        for (n, value) in values.iter().enumerate() {
            let named = Named { name: format!("N{n}"), value: Secret::new(value.to_vec()) };
            text.extend_from_slice(line(&named.name, &named.value).as_bytes());
            text.extend_from_slice(value);
        }
        let got = shown(parse(&text)).unwrap();
        let want: Vec<&[u8]> = [&[b"TOKEN".as_slice(), b"key"][..], &values].concat();
        assert_eq!(got.iter().map(|(_, v)| v.as_slice()).collect::<Vec<_>>(), want);
        assert_eq!((got[2].0.as_str(), got[4].0.as_str()), ("N0", "N2"));
        assert_eq!(shown(parse(b"T\n")).unwrap()[1].1, b"");
        let proxy = parse(b"T\nk\n- 3\na\nb").unwrap();
        assert!(proxy.named.is_empty() && proxy.password.is_some_and(|p| p.same(b"a\nb")));
        // Cut anywhere behind the key, it is refused, or it was whole up to there.
        for cut in 10..text.len() {
            assert!(parse(&text[..cut]).is_err() || values.iter().any(|v| text[..cut].ends_with(v)), "{cut}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "T",
            "\nkey",
            "T\nk\n",
            "T\nk\nN",
            "T\nk\nN 1",
            "T\nk\nN x\nv",
            "T\nk\nN 2\nv",
            "T\nk\nN 1\nvw",
            "T\nk\nN1\nv",
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text:?}");
        }
    }
}
