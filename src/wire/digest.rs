//! SHA-256 and hexadecimal. Pure. Called where records are chained and files are named by content.

use sha2::{Digest as _, Sha256};

/// SHA-256 of `bytes` as 64 lower-case hexadecimal digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// SHA-256 of what comes in pieces.
#[derive(Default)]
pub struct Digest(Sha256);

impl Digest {
    /// The next piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// As `sha256_hex`.
    pub fn hex(self) -> String {
        hex(&self.0.finalize())
    }
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |n: u8| char::from_digit(u32::from(n), 16).unwrap_or('0');
    bytes.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::{hex, sha256_hex};

    /// FIPS 180-2, appendix B.1, and the empty message.
    #[test]
    fn known_answers() {
        assert_eq!(sha256_hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(sha256_hex(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(hex(&[0, 15, 16, 255]), "000f10ff");
    }
}
