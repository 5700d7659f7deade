//! The one escape door: whatever came from the box, the network or a file is shown through `escaped`.

/// Text for a terminal or a log line: C0, C1, DEL, line breaks, bidi controls and zero-width characters become `\u{..}`
/// (or `\n`, `\t`, `\r`); everything else stays.
pub fn escaped(text: &str) -> String {
    let _ = text;
    todo!()
}

/// `escaped`, cut to `most` characters with `…` at the end where it was longer.
pub fn short(text: &str, most: usize) -> String {
    let _ = (text, most);
    todo!()
}
