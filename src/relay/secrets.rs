//! The secrets of a relay role, from the one pipe they come on. Called by `start`.

use crate::error::Error;
use crate::limits;
use crate::secret::Secret;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;

/// What comes on the pipe of that name.
pub struct Secrets {
    /// What the box presents as its key.
    pub token: Secret,
    /// The provider's.
    pub key: Secret,
    /// Of the proxy.
    pub password: Option<Secret>,
}

/// Token, LF, key, end of file; or before that LF and the proxy's password.
pub fn secrets_from(fd: OwnedFd) -> Result<Secrets, Error> {
    let most = [limits::KEY_BYTES, limits::PROXY_AUTH_BYTES, 2]
        .into_iter()
        .fold(limits::TOKEN_BYTES, usize::saturating_add);
    // Room for all of it from the start, so that no half-read copy stays behind in freed memory.
    let mut both = Vec::with_capacity(most.saturating_add(1));
    let read = File::from(fd).take(u64::try_from(most).unwrap_or(u64::MAX)).read_to_end(&mut both);
    read.map_err(|e| Error::fault("read", "the relay's secrets", e))?;
    let Some(at) = both.iter().position(|b| *b == b'\n') else {
        return Err(Error::fault("read", "the relay's secrets", "there is no line end after the token"));
    };
    let rest = both.get(at.saturating_add(1)..).unwrap_or_default();
    let (key, password) = match rest.iter().position(|b| *b == b'\n') {
        None => (rest, None),
        Some(end) => (rest.get(..end).unwrap_or_default(), rest.get(end.saturating_add(1)..)),
    };
    let (key, password) = (Secret::new(key.to_vec()), password.map(|p| Secret::new(p.to_vec())));
    both.get_mut(at..).unwrap_or_default().fill(0);
    both.truncate(at);
    let token = Secret::new(both);
    if token.is_empty() {
        return Err(Error::fault("read", "the relay's secrets", "the token is empty"));
    }
    Ok(Secrets { token, key, password })
}
