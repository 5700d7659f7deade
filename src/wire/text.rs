//! The one escape door: whatever came from the box, the network or a file is shown through `escaped`. Pure text in, text
//! out; it does not make text safe for HTML, a shell or JSON.

/// Text for a terminal or a log line: C0, C1, DEL, line breaks, bidi controls and characters without width become `\u{..}`
/// (or `\n`, `\t`, `\r`); everything else stays.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        push(&mut out, c);
    }
    out
}

/// `escaped`, cut to `most` characters with `…` as the last of them where it was longer; an escape is never cut in two.
pub fn short(text: &str, most: usize) -> String {
    let mut out = String::new();
    // Bytes of `out` up to the last place where a `…` still fits.
    let (mut length, mut cut) = (0usize, 0usize);
    for c in text.chars() {
        let before = out.len();
        push(&mut out, c);
        length = length.saturating_add(out.get(before..).unwrap_or_default().chars().count());
        if length > most {
            out.truncate(cut);
            if most > 0 {
                out.push('…');
            }
            return out;
        }
        if length < most {
            cut = out.len();
        }
    }
    out
}

/// A JSON text on one line with nothing in it that acts on a terminal: what hides inside its strings becomes an escape
/// (`\u` and four digits), which reads back as the same text.
pub fn json_escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            // Only ever between tokens: inside a string they are not JSON.
            '\n' | '\t' | '\r' => out.push(' '),
            _ if hidden(c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            _ => out.push(c),
        }
    }
    out
}

fn push(out: &mut String, c: char) {
    match c {
        '\n' | '\t' | '\r' => out.extend(c.escape_default()),
        _ if hidden(c) => out.extend(c.escape_unicode()),
        _ => out.push(c),
    }
}

/// Characters that act on the terminal or reorder, or that leave no mark: what is read would not be what is there.
fn hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Line and paragraph separators, bidi marks, embeddings, overrides and isolates (Unicode UAX 9).
            '\u{2028}'..='\u{202e}' | '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{2066}'..='\u{206f}'
            // Without width: spaces, joiners, soft hyphen, invisible operators, fillers, byte order mark.
            | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}' | '\u{ad}' | '\u{34f}' | '\u{180b}'..='\u{180f}'
            | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{3164}' | '\u{ffa0}' | '\u{feff}'
            | '\u{fff0}'..='\u{fffb}'
            // Tags and the supplement of variation selectors: whole sentences can hide in them.
            | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::{escaped, short};

    #[test]
    fn what_acts_or_hides_is_shown() {
        for (text, shown) in [
            ("plain, äöü, 漢字, 🙂", "plain, äöü, 漢字, 🙂"),
            ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
            ("\u{1b}]0;title\u{7}", "\\u{1b}]0;title\\u{7}"),
            ("\0\u{7f}\u{9b}31m", "\\u{0}\\u{7f}\\u{9b}31m"),
            ("\u{85}\u{2028}\u{2029}", "\\u{85}\\u{2028}\\u{2029}"),
            ("a\u{202e}b\u{2066}c\u{200f}\u{61c}", "a\\u{202e}b\\u{2066}c\\u{200f}\\u{61c}"),
            ("a\u{200b}\u{200d}\u{feff}\u{ad}", "a\\u{200b}\\u{200d}\\u{feff}\\u{ad}"),
            ("\u{e0041}\u{e0100}", "\\u{e0041}\\u{e0100}"),
            ("a b\u{a0}c\u{2010}\u{2027}\u{202f}\u{fe0f}", "a b\u{a0}c\u{2010}\u{2027}\u{202f}\u{fe0f}"),
        ] {
            assert_eq!(escaped(text), shown);
            assert_eq!(short(text, 100), shown);
        }
    }

    #[test]
    fn json_reads_back_the_same() {
        for (text, shown) in [
            ("{\"a\":\t\"ä 漢\"}", "{\"a\": \"ä 漢\"}"),
            ("\"\u{9b}31m\u{7f}\u{202e}\u{e0041}\"", "\"\\u009b31m\\u007f\\u202e\\udb40\\udc41\""),
        ] {
            assert_eq!(super::json_escaped(text), shown);
            let read = |t: &str| serde_json::from_str::<serde_json::Value>(t).unwrap();
            assert_eq!(read(text), read(shown));
        }
    }

    #[test]
    fn short_counts_characters_and_keeps_escapes_whole() {
        for (text, most, shown) in [
            ("abcdef", 6, "abcdef"),
            ("abcdef", 5, "abcd…"),
            ("äöüß", 3, "äö…"),
            ("abcdef", 1, "…"),
            ("abcdef", 0, ""),
            ("", 0, ""),
            ("ab\u{1b}cd", 9, "ab\\u{1b}…"),
            ("ab\u{1b}c", 9, "ab\\u{1b}c"),
            ("ab\u{1b}", 7, "ab…"),
            ("\n\n\n", 5, "\\n\\n…"),
        ] {
            assert_eq!(short(text, most), shown, "{text:?} {most}");
            assert!(short(text, most).chars().count() <= most);
        }
    }
}
