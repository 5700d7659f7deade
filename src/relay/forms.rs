//! In which forms a secret is looked for: as it stands, and as base64 text of any longer text that holds it. A form is computed from
//! the secret each time it is compared, so that no second copy of it is made. Called by `search`.

/// How a secret is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// As it stands.
    Plain,
    /// In base64 (RFC 4648): the letters that the secret alone decides, where `ahead` bytes of a group of three stand before it.
    /// The letters at both ends, which depend on what is beside it, and the padding are left out.
    Base64 {
        /// 0, 1 or 2.
        ahead: usize,
        /// With `-` and `_` for `+` and `/` (RFC 4648 section 5).
        url: bool,
    },
}

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

impl Code {
    /// Bytes of this form of a secret of `length` bytes.
    pub fn len(self, length: usize) -> usize {
        match self {
            Code::Plain => length,
            Code::Base64 { ahead, .. } => {
                let end = ahead.saturating_add(length).saturating_mul(8) / 6;
                end.saturating_sub(first(ahead))
            }
        }
    }

    /// Byte `at` of this form of `value`; `None` behind its end.
    pub fn byte(self, value: &[u8], at: usize) -> Option<u8> {
        let Code::Base64 { ahead, url } = self else { return value.get(at).copied() };
        if at >= self.len(value.len()) {
            return None;
        }
        // The six bits begin at this bit of the secret; they may reach into its next byte.
        let bit = first(ahead).saturating_add(at).saturating_mul(6).saturating_sub(ahead.saturating_mul(8));
        let (byte, within) = (bit / 8, bit % 8);
        let of = |at: usize| value.get(at).copied().map_or(0, u32::from);
        let two = of(byte).wrapping_shl(8) | of(byte.saturating_add(1));
        let shift = 10u32.saturating_sub(u32::try_from(within).unwrap_or(0));
        let six = usize::try_from(two.wrapping_shr(shift) & 0x3F).unwrap_or(0);
        match (six, url) {
            (62, true) => Some(b'-'),
            (63, true) => Some(b'_'),
            _ => STANDARD.get(six).copied(),
        }
    }

    /// A base64 letter may have a line end behind it.
    pub fn wraps(self) -> bool {
        self != Code::Plain
    }
}

/// The first letter that what stands before the secret has no part in.
fn first(ahead: usize) -> usize {
    ahead.saturating_mul(8).div_ceil(6)
}

/// All forms in which a value is looked for. One that is shorter than `least` is looked for as it stands only: its base64 letters are so
/// few that they stand in innocent texts.
pub fn all(value: &[u8], least: usize) -> Vec<Code> {
    let mut forms = vec![Code::Plain];
    if value.len() < least {
        return forms;
    }
    for ahead in 0..3 {
        let standard = Code::Base64 { ahead, url: false };
        let url = Code::Base64 { ahead, url: true };
        let letters = 0..standard.len(value.len());
        forms.push(standard);
        if letters.into_iter().any(|at| standard.byte(value, at) != url.byte(value, at)) {
            forms.push(url);
        }
    }
    forms
}

#[cfg(test)]
mod tests {
    use super::{Code, all};

    /// Written by hand, not by what is tested.
    #[expect(clippy::arithmetic_side_effects, reason = "a unit test")]
    fn base64(bytes: &[u8], url: bool) -> String {
        let letters = if url {
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        } else {
            super::STANDARD
        };
        let bits: Vec<u8> = bytes.iter().flat_map(|b| (0..8).rev().map(move |i| (b >> i) & 1)).collect();
        bits.chunks(6)
            .map(|six| six.iter().fold(0, |n, b| n * 2 + usize::from(*b)) << (6 - six.len()))
            .map(|n| char::from(letters[n]))
            .collect()
    }

    #[test]
    fn base64_of_what_is_around_a_secret_holds_its_letters() {
        let secret = b"s3cr\xFFt/\xFB\xEF+0123456789\x00\n?>";
        for before in 0..9 {
            for after in 0..5 {
                let text = [&vec![b'x'; before][..], secret, &vec![b'~'; after]].concat();
                for url in [false, true] {
                    let whole = base64(&text, url);
                    let held = all(secret, 16).into_iter().filter(|f| f.wraps()).any(|f| {
                        let letters: Vec<u8> =
                            (0..f.len(secret.len())).map(|i| f.byte(secret, i).unwrap()).collect();
                        assert!(f.byte(secret, letters.len()).is_none());
                        whole.contains(std::str::from_utf8(&letters).unwrap())
                    });
                    assert!(held, "{before} {after} {url}");
                }
            }
        }
    }

    #[test]
    fn one_alphabet_where_both_say_the_same() {
        assert_eq!(all(b"0123456789abcdef", 16).len(), 4);
        assert_eq!(all(&[0xFF; 16], 16).len(), 7);
        assert_eq!(all(b"short", 16), [Code::Plain]);
    }
}
