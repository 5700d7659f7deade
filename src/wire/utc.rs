//! A moment as a person reads it, in UTC. Pure; the clock is `sys::proc::now`.

/// Milliseconds since the epoch as `2026-11-30 17:45:01Z`; what lies behind the year 9999 as the number it is.
pub fn written(at_ms: u64) -> String {
    let seconds = at_ms / 1000;
    let (mut day, mut year) = (seconds / 86_400, 1970u64);
    while day >= days_in(year) {
        if year == 9999 {
            return format!("{at_ms}ms");
        }
        day = day.saturating_sub(days_in(year));
        year = year.saturating_add(1);
    }
    let february = days_in(year).saturating_sub(337);
    let mut month = 1u64;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < days {
            break;
        }
        day = day.saturating_sub(days);
        month = month.saturating_add(1);
    }
    let (h, m, s) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year}-{month:02}-{:02} {h:02}:{m:02}:{s:02}Z", day.saturating_add(1))
}

fn days_in(year: u64) -> u64 {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    if leap { 366 } else { 365 }
}

#[cfg(test)]
mod tests {
    use super::written;

    /// Against `date -u -d @N`.
    #[test]
    fn known_moments() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00Z"),
            (68_169_600, "1972-02-29 00:00:00Z"),
            (951_782_399, "2000-02-28 23:59:59Z"),
            (951_868_800, "2000-03-01 00:00:00Z"),
            (1_796_060_701, "2026-11-30 17:45:01Z"),
            (4_107_542_399, "2100-02-28 23:59:59Z"),
            (4_107_542_400, "2100-03-01 00:00:00Z"),
            (253_402_300_799, "9999-12-31 23:59:59Z"),
        ] {
            assert_eq!(written(seconds * 1000 + 999), text);
        }
        assert_eq!(written(253_402_300_800_000), "253402300800000ms");
        assert_eq!(written(u64::MAX), format!("{}ms", u64::MAX));
    }
}
