//! Durations as people type and read them. Pure; the bounds (a week, a minimum) are the caller's.

use std::time::Duration;

/// Digits are seconds; with `s`, `m`, `h` or `d` behind them, that unit. White space around is ignored. Zero, signs, fractions,
/// other units and words are refused; the error is one clause.
pub fn parse(text: &str) -> Result<Duration, String> {
    let refused = || format!("{:?} is not a duration: write 900, 90s, 15m, 2h or 7d", text.trim());
    let trimmed = text.trim();
    let (digits, unit) = match trimmed.char_indices().next_back() {
        Some((at, letter)) if letter.is_ascii_alphabetic() => (trimmed.get(..at).unwrap_or_default(), letter),
        _ => (trimmed, 's'),
    };
    let scale = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86400,
        _ => return Err(refused()),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(refused());
    }
    let seconds = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(scale)).filter(|n| *n > 0);
    seconds.map(Duration::from_secs).ok_or_else(refused)
}

/// Elapsed time: `0.4s`, `12.3s`, `4m05s`, `2h00m`.
pub fn human(elapsed: Duration) -> String {
    // Tenths, rounded, so that 59.96 s is 1m00s and not 60.0s.
    let tenths = elapsed.as_millis().saturating_add(50).checked_div(100).unwrap_or_default();
    let split =
        |n: u128, by: u128| (n.checked_div(by).unwrap_or_default(), n.checked_rem(by).unwrap_or_default());
    let (seconds, tenth) = split(tenths, 10);
    if seconds < 60 {
        return format!("{seconds}.{tenth}s");
    }
    let (minutes, second) = split(u128::from(elapsed.as_secs().max(60)), 60);
    if minutes < 60 {
        return format!("{minutes}m{second:02}s");
    }
    let (hours, minute) = split(minutes, 60);
    format!("{hours}h{minute:02}m")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_duration() {
        for (text, seconds) in
            [("900", 900), (" 15m\n", 900), ("90s", 90), ("2h", 7200), ("7d", 604_800), ("1", 1), ("007", 7)]
        {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        let refused = [
            "",
            " ",
            "0",
            "0m",
            "-5",
            "+5",
            "m",
            "1w",
            "1.5h",
            "5 minutes",
            "5 m",
            "1h30m",
            "1M",
            "5é",
            "٣",
            "1e3",
            "99999999999999999999",
            "18446744073709551615d",
        ];
        for text in refused {
            assert!(parse(text).is_err_and(|why| why.contains("duration")), "{text}");
        }
    }

    #[test]
    fn elapsed_times() {
        let cases = [
            (0, "0.0s"),
            (440, "0.4s"),
            (12_345, "12.3s"),
            (59_940, "59.9s"),
            (59_960, "1m00s"),
            (60_000, "1m00s"),
            (245_900, "4m05s"),
            (3_599_999, "59m59s"),
            (7_200_000, "2h00m"),
            (90_061_000, "25h01m"),
        ];
        for (millis, text) in cases {
            assert_eq!(human(Duration::from_millis(millis)), text);
        }
    }
}
