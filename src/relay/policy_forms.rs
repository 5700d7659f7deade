//! Forms that a string of a request may have to have: data in place, never a reference to where data is; a tool's name. Pure, linear.
//! Called by `relay/policy_fields.rs` with decoded strings.

use crate::catalog::fields::bit;

/// Whether a string has one of the forms.
pub fn has_form(bits: u16, text: &[u8]) -> bool {
    (bits & bit::BASE64 != 0 && base64(text))
        || (bits & bit::DATA != 0 && data_url(text).is_some())
        || (bits & bit::IMAGE != 0 && data_url(text).is_some_and(|t| PICTURES.contains(&t)))
        || (bits & bit::LABEL != 0 && label(text))
}

/// Not svg: it can refer to other files.
const PICTURES: [&[u8]; 5] = [b"image/png", b"image/jpeg", b"image/jpg", b"image/gif", b"image/webp"];

/// The type of a `data:TYPE;base64,` URL whose data is base64.
fn data_url(text: &[u8]) -> Option<&[u8]> {
    let rest = text.strip_prefix(b"data:")?;
    let comma = rest.iter().take(DATA_TYPE_BYTES).position(|b| *b == b',')?;
    let (head, data) = rest.split_at_checked(comma)?;
    let kind = head.strip_suffix(b";base64")?;
    let plain = kind.iter().all(|b| b.is_ascii_alphanumeric() || b"/.+-".contains(b));
    (plain && base64(data.strip_prefix(b",")?)).then_some(kind)
}

/// A media type and `;base64`.
const DATA_TYPE_BYTES: usize = 140;

/// RFC 4648 section 4, padded, line ends anywhere. Whole groups of four, so that a path or a bare word is not taken for data.
fn base64(text: &[u8]) -> bool {
    let end =
        text.iter().rposition(|b| !matches!(b, b'=' | b'\r' | b'\n')).map_or(0, |at| at.saturating_add(1));
    let (data, tail) = text.split_at_checked(end).unwrap_or((text, b""));
    let mut length: usize = 0;
    let mut clean = true;
    for b in data {
        let space = matches!(b, b'\r' | b'\n');
        clean &= space | b.is_ascii_alphanumeric() | (*b == b'+') | (*b == b'/');
        length = length.wrapping_add(usize::from(!space));
    }
    let padding = tail.iter().filter(|b| **b == b'=').count();
    clean && padding <= 2 && length.wrapping_add(padding) % 4 == 0
}

/// What all three protocols take for the name of a tool.
fn label(text: &[u8]) -> bool {
    (1..=128).contains(&text.len())
        && text.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::{base64, data_url, label};

    #[test]
    fn base64_is_whole_and_nothing_else() {
        for good in ["", "AAAA", "AA==", "AAA=", "+/+/", "AA\r\nAA", "AA=\n=\r\n", "//uQ"] {
            assert!(base64(good.as_bytes()), "{good}");
        }
        for bad in [
            "A",
            "AAAAA",
            "AAAA=",
            "A===",
            "====",
            "AA=A",
            "AA==AAAA",
            "AA-_",
            "AA AA",
            "AA\tA",
            "/etc/passwd",
            "http://x",
            "file:///x",
            "AAAA#",
            "AAAé",
            "AA\0A",
        ] {
            assert!(!base64(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn data_urls_hold_their_data() {
        assert_eq!(data_url(b"data:image/png;base64,AAAA"), Some(&b"image/png"[..]));
        assert_eq!(data_url(b"data:application/x.y+z-1;base64,"), Some(&b"application/x.y+z-1"[..]));
        for bad in [
            "data:,AAAA",
            "data:image/png,AAAA",
            "data:image/png;base64;AAAA",
            "DATA:image/png;base64,AAAA",
            " data:image/png;base64,AAAA",
            "data:image/png;charset=x;base64,AAAA",
            "data:image/png;base64,http://x",
            "data:image/png;base64",
            "data:",
            "http://x/data:image/png;base64,AAAA",
        ] {
            assert_eq!(data_url(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn labels() {
        assert!(label(b"mcp__a-b_9") && label(&[b'a'; 128]));
        for bad in [&b""[..], b"$web_search", b"a.b", b"openrouter:x", "é".as_bytes(), &[b'a'; 129]] {
            assert!(!label(bad));
        }
    }
}
