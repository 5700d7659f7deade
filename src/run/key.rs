//! The provider key on its way to the relay: found, checked, written once into a pipe, wiped. The only file of `run` that may name
//! `secret`; nothing else of a run ever sees a byte of it.

use crate::catalog::providers;
use crate::error::Error;
use crate::limits;
use crate::relay::search::Named;
use crate::relay::secrets;
use crate::secret::Secret;
use crate::sys::{env, file, net};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A key that is fit for a header line, and what is guarded with it.
pub struct Key {
    /// Empty where the provider needs none.
    key: Secret,
    named: Vec<Named>,
    /// Of the proxy on the way to the provider.
    password: Option<Secret>,
}

/// Keys taken out of the environment, by variable.
pub struct Taken(Vec<(String, Secret)>);

impl Taken {
    /// The variables that were set, by name.
    pub fn names(&self) -> Vec<&str> {
        self.0.iter().map(|(name, _)| name.as_str()).collect()
    }
}

/// Where the provider key comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    /// The provider's variable, or the systemd credential of the same name.
    Variable {
        /// Its name.
        name: String,
        /// `$CREDENTIALS_DIRECTORY`.
        credentials: Option<PathBuf>,
    },
    /// `--key-file`.
    File(PathBuf),
    /// `--key-fd`.
    Fd(i32),
}

/// Takes the key variables of every shipped provider and overwrites them in place, so that no child and no `/proc` entry has any.
/// First act of `main`, before any thread.
pub fn take_from_environment() -> Taken {
    let variables = providers::names().into_iter().filter_map(providers::shipped).map(|p| p.key_variable);
    let mut taken = Vec::new();
    for name in variables {
        #[expect(clippy::disallowed_methods, reason = "KEY-40 the provider's variable")]
        if let Some(value) = env::take(&name) {
            taken.push((name, value));
        }
    }
    Taken(taken)
}

impl Taken {
    /// Of these, by variable.
    pub fn of(all: Vec<(String, Secret)>) -> Taken {
        Taken(all)
    }

    /// One of them, or another variable, which is overwritten in place then. Before any thread.
    pub fn take(&mut self, name: &str) -> Option<Secret> {
        if let Some(at) = self.0.iter().position(|(n, _)| n == name) {
            return Some(self.0.swap_remove(at).1);
        }
        #[expect(clippy::disallowed_methods, reason = "KEY-45 a variable of --secret-env")]
        env::take(name)
    }
}

/// Reads and checks the key. `required`: none is an error.
pub fn find(from: &From, taken: Taken, required: bool) -> Result<Key, Error> {
    let (secret, place) = match from {
        From::Variable { name, credentials } => variable(name, credentials.as_deref(), taken)?,
        From::File(path) => (read(path)?, path.display().to_string()),
        From::Fd(number) => (descriptor(*number)?, format!("descriptor {number}")),
    };
    if secret.is_empty() && required {
        return Err(Error::wrong("find", "the provider key", format!("{place} is not set, or is empty"))
            .remedy("set it, or give --key-file FILE"));
    }
    #[expect(clippy::disallowed_methods, reason = "KEY-41 the key's bytes are checked to be visible ASCII")]
    let visible = secret.expose().iter().all(|b| b.is_ascii_graphic());
    match visible {
        true => Ok(Key { key: secret, named: Vec::new(), password: None }),
        false => Err(Error::wrong(
            "use",
            format!("the key from {place}"),
            "it holds white space or bytes that no header may hold",
        )
        .remedy("put the bare key there, on one line")),
    }
}

fn variable(name: &str, credentials: Option<&Path>, taken: Taken) -> Result<(Secret, String), Error> {
    if let Some((_, value)) = taken.0.into_iter().find(|(n, _)| n == name) {
        return Ok((value, name.to_string()));
    }
    if let Some(dir) = credentials {
        let path = dir.join(name);
        #[expect(clippy::disallowed_methods, reason = "FILE-40 whether systemd gave a credential")]
        let given = file::facts(&path).is_ok();
        if given {
            return Ok((read(&path)?, path.display().to_string()));
        }
    }
    Ok((Secret::new(Vec::new()), name.to_string()))
}

fn read(path: &Path) -> Result<Secret, Error> {
    #[expect(clippy::disallowed_methods, reason = "FILE-41 --key-file or a systemd credential")]
    let bytes = file::read_named(path, bound())
        .map_err(|e| Error::wrong("read the key from", path.display().to_string(), e))?;
    Ok(trimmed(bytes))
}

fn descriptor(number: i32) -> Result<Secret, Error> {
    let on = || format!("descriptor {number}");
    let doing = "read the key from";
    let fd = net::inherited(number)
        .map_err(|e| Error::wrong(doing, on(), e).remedy("open it in the shell: --key-fd 3 3<keyfile"))?;
    let conn = net::Conn::new(fd);
    let mut all = Vec::with_capacity(limits::KEY_BYTES);
    let mut buf = [0u8; 1024];
    loop {
        match conn.read(&mut buf, Duration::from_secs(10)) {
            Ok(0) => return Ok(trimmed(all)),
            Ok(n) => all.extend_from_slice(&buf[..n]),
            Err(e) => return Err(Error::wrong(doing, on(), e)),
        }
        if all.len() > limits::KEY_BYTES {
            return Err(Error::wrong(doing, on(), "it is longer than any key"));
        }
    }
}

fn bound() -> u64 {
    u64::try_from(limits::KEY_BYTES).unwrap_or(u64::MAX)
}

/// Without the white space around it; the untrimmed copy is wiped.
fn trimmed(bytes: Vec<u8>) -> Secret {
    let whole = Secret::new(bytes);
    #[expect(clippy::disallowed_methods, reason = "KEY-42 the line end after a key is cut off")]
    let inner = whole.expose().trim_ascii().to_vec();
    Secret::new(inner)
}

impl Key {
    /// No key.
    pub fn none() -> Key {
        Key { key: Secret::new(Vec::new()), named: Vec::new(), password: None }
    }

    /// With more to be guarded.
    pub fn beside(mut self, named: Vec<Named>) -> Key {
        self.named.extend(named);
        self
    }

    /// With the password of the proxy on the way to the provider.
    pub fn with_password(mut self, password: Secret) -> Key {
        self.password = Some(password);
        self
    }

    /// The key as text, for the agent in open mode, and nowhere else.
    pub fn into_text(self) -> String {
        #[expect(clippy::disallowed_methods, reason = "KEY-44 open mode: the key goes into the box")]
        let bytes = self.key.expose();
        String::from_utf8_lossy(bytes).into_owned()
    }

    /// A pipe that holds all that the relay reads (`relay::secrets`), its write end closed. Everything is wiped here.
    pub fn into_pipe(self, token: &str) -> std::io::Result<OwnedFd> {
        let (read, write) = net::pipe()?;
        let write = net::Conn::new(write);
        let lines: Vec<String> = self.named.iter().map(|n| secrets::line(&n.name, &n.value)).collect();
        let proxy = self.password.as_ref().map(|p| secrets::line(secrets::PASSWORD, p));
        #[expect(clippy::disallowed_methods, reason = "KEY-43 the key goes into the relay's pipe")]
        let mut parts: Vec<&[u8]> = vec![token.as_bytes(), b"\n", self.key.expose()];
        for (line, named) in lines.iter().zip(&self.named) {
            parts.push(line.as_bytes());
            #[expect(clippy::disallowed_methods, reason = "KEY-46 and so do the other secrets")]
            parts.push(named.value.expose());
        }
        if let Some((line, password)) = proxy.iter().zip(&self.password).next() {
            parts.push(line.as_bytes());
            #[expect(
                clippy::disallowed_methods,
                reason = "KEY-47 the proxy's password into the relay's pipe"
            )]
            parts.push(password.expose());
        }
        write.write_all(&parts, Duration::from_secs(5))?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_variable(value: &[u8], required: bool) -> Result<Key, Error> {
        let taken = Taken(vec![("K".into(), Secret::new(value.to_vec()))]);
        find(&From::Variable { name: "K".into(), credentials: None }, taken, required)
    }

    #[test]
    fn a_key_is_visible_ascii_or_refused() {
        assert!(from_variable(b"sk-1", true).is_ok());
        for bad in [&b"a b"[..], b"a\r\nx: y", b"\xff", b"a\0"] {
            assert!(from_variable(bad, true).is_err());
        }
        assert!(from_variable(b"", true).is_err());
        assert!(from_variable(b"", false).is_ok());
    }

    #[test]
    fn only_the_named_variable_counts() {
        let taken = Taken(vec![("OTHER".into(), Secret::new(b"sk".to_vec()))]);
        assert!(find(&From::Variable { name: "K".into(), credentials: None }, taken, true).is_err());
    }
}
