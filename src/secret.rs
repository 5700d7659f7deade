//! A value that must not be shown: the provider key, the run token, the control secret. No `Debug`, `Display`, `Clone`
//! or `Serialize`; wiped when dropped; every use of its bytes is a door named KEY-nn (`audit/KEYS.md`).

use std::sync::atomic::{Ordering, compiler_fence};

/// Bytes that are never printed and are overwritten on drop.
pub struct Secret(Vec<u8>);

impl Secret {
    /// Takes the bytes over; the caller keeps no copy.
    pub fn new(bytes: Vec<u8>) -> Secret {
        Secret(bytes)
    }

    /// The bytes. A closed method: each caller opens it by name (clippy `disallowed-methods`).
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Its memory, wiped, for the next secret.
    pub fn into_room(mut self) -> Vec<u8> {
        self.wipe();
        std::mem::take(&mut self.0)
    }

    fn wipe(&mut self) {
        self.0.fill(0);
        // Keeps the compiler from dropping the writes as dead; `forbid(unsafe_code)` rules out a volatile write.
        std::hint::black_box(&mut self.0);
        compiler_fence(Ordering::SeqCst);
    }

    /// Number of bytes; 0 means "no secret".
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True where there is nothing to hide.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Compares in a time that depends only on the length of `other`. An empty secret equals nothing.
    pub fn same(&self, other: &[u8]) -> bool {
        let mut diff = usize::from(self.0.is_empty()) | (self.0.len() ^ other.len());
        for (i, b) in other.iter().enumerate() {
            // The index wraps over our own bytes, so that a wrong length takes the same path.
            let ours = self.0.get(i % self.0.len().max(1)).copied().unwrap_or(0);
            diff |= usize::from(ours ^ b);
        }
        diff == 0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.wipe();
    }
}

#[cfg(test)]
mod tests {
    use super::Secret;

    #[test]
    fn same_is_exact_and_never_matches_empty() {
        let s = Secret::new(b"RUNTOKEN".to_vec());
        assert!(s.same(b"RUNTOKEN"));
        for no in [&b""[..], b"R", b"RUNTOKEM", b"RUNTOKENRUNTOKEN", b"RUNTOKEN\0"] {
            assert!(!s.same(no));
        }
        assert!(!Secret::new(Vec::new()).same(b""));
    }
}
