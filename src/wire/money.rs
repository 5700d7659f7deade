//! Money as whole picodollars (10^-12 dollars), and decimal texts read into them exactly: no binary fraction ever enters a sum. A price
//! of a millionth of a dollar per million tokens is one picodollar a token. Sums saturate, so that an overflow is never a small number.

use serde::{Deserialize, Serialize};
use std::fmt;

/// An amount. In JSON of ours a whole number of picodollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Money(u64);

/// Decimal places of a picodollar.
const PLACES: usize = 12;
/// The largest amount that is read: a million dollars. More is a mistake of whoever wrote it.
const MOST: u64 = 1_000_000_000_000_000_000;

impl Money {
    /// So many picodollars.
    pub fn from_picos(picos: u64) -> Money {
        Money(picos)
    }

    /// As picodollars.
    pub fn picos(self) -> u64 {
        self.0
    }

    /// So many tokens at so many picodollars each.
    pub fn of(tokens: u64, each: u64) -> Money {
        Money(tokens.saturating_mul(each))
    }

    /// The sum.
    #[must_use]
    pub fn plus(self, other: Money) -> Money {
        Money(self.0.saturating_add(other.0))
    }

    /// What is left; never below nothing.
    #[must_use]
    pub fn less(self, other: Money) -> Money {
        Money(self.0.saturating_sub(other.0))
    }

    /// For JSON that people's tools read. Never added up.
    pub fn dollars(self) -> f64 {
        let half = |n: u64| f64::from(u32::try_from(n & 0xFFFF_FFFF).unwrap_or(u32::MAX));
        // Both halves are exact, so the sum is rounded once.
        (half(self.0 >> 32) * 4_294_967_296.0 + half(self.0)) / 1e12
    }

    /// What a person writes: `2`, `2.50`. No sign, no exponent, at most twelve decimals, at most a million dollars.
    pub fn typed(text: &str) -> Option<Money> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |t: &str| !t.is_empty() && t.len() <= PLACES && t.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(part) {
            return None;
        }
        Money::reported(text, PLACES)
    }

    /// What a server reports, a JSON number or the like in a string; `places`: decimals of a picodollar in its unit (12: dollars).
    /// Rounded up. Negative, not a number, over a million dollars: no report.
    pub fn reported(text: &str, places: usize) -> Option<Money> {
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (number, exponent) = match text.split_once(['e', 'E']) {
            Some((number, exponent)) => (number, self::exponent(exponent)?),
            None => (text, 0),
        };
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        let mut digits = Digits { scale: i64::try_from(places).ok()?, ..Digits::default() };
        digits.take(whole, false)?;
        digits.take(part, true)?;
        if whole.is_empty() && part.is_empty() {
            return None;
        }
        digits.scale = digits.scale.saturating_add(exponent);
        let picos = u64::try_from(digits.rounded_up()?).ok().filter(|p| *p <= MOST)?;
        (!negative || picos == 0).then_some(Money(picos))
    }
}

/// An exponent; beyond six digits all are as good as infinite.
fn exponent(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let size =
        digits.trim_start_matches('0').get(..6).map_or_else(|| digits.parse().ok(), |_| Some(1_000_000));
    size.map(|n: i64| if text.starts_with('-') { n.saturating_neg() } else { n })
}

/// A decimal number being read: `value` times ten to the power of `scale`, and whether non-zero digits were dropped behind it.
#[derive(Default)]
struct Digits {
    value: u128,
    scale: i64,
    more: bool,
}

/// Digits kept; more do not change an amount that is in range.
const KEPT: u128 = 10u128.pow(30);

impl Digits {
    fn take(&mut self, text: &str, fraction: bool) -> Option<()> {
        for b in text.bytes() {
            let digit = b.checked_sub(b'0').filter(|d| *d <= 9)?;
            if self.value < KEPT {
                self.value = self.value.saturating_mul(10).saturating_add(u128::from(digit));
                self.scale = self.scale.saturating_sub(i64::from(fraction));
            } else {
                self.more |= digit > 0;
                self.scale = self.scale.saturating_add(i64::from(!fraction));
            }
        }
        Some(())
    }

    fn rounded_up(&self) -> Option<u128> {
        if self.value == 0 {
            return Some(0);
        }
        let power = u32::try_from(self.scale.unsigned_abs()).unwrap_or(u32::MAX);
        let (whole, rest) = match (10u128.checked_pow(power), self.scale < 0) {
            (Some(by), false) => (self.value.checked_mul(by)?, self.more),
            (None, false) => return None,
            (Some(by), true) => {
                let rest = self.value.checked_rem(by)? > 0 || self.more;
                (self.value.checked_div(by)?, rest)
            }
            (None, true) => (0, true),
        };
        whole.checked_add(u128::from(rest))
    }
}

/// `$1.2000`; amounts under a tenth of a cent get six decimals.
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = if self.0 > 0 && self.0 < 1_000_000_000 { 6u32 } else { 4 };
        let unit = 10u64.pow(12u32.saturating_sub(places));
        let rounded = self.0.saturating_add(unit / 2).checked_div(unit).unwrap_or(0);
        let one = 10u64.pow(places);
        let (whole, part) = (rounded.checked_div(one).unwrap_or(0), rounded.checked_rem(one).unwrap_or(0));
        write!(f, "${whole}.{part:0width$}", width = usize::try_from(places).unwrap_or(4))
    }
}

#[cfg(test)]
mod tests {
    use super::Money;

    fn told(text: &str) -> Option<u64> {
        Money::reported(text, 12).map(Money::picos)
    }

    #[test]
    fn reports_are_read_exactly_and_rounded_up() {
        for (text, picos) in [
            ("0", 0),
            ("-0.0", 0),
            ("0e99999999999999999999", 0),
            ("1", 1_000_000_000_000),
            ("0.1", 100_000_000_000),
            ("+0.25", 250_000_000_000),
            (".5", 500_000_000_000),
            ("5e-05", 50_000_000),
            ("1.25E+2", 125_000_000_000_000),
            ("0.0000000000001", 1),
            ("0.0000000000011", 2),
            ("1e-400", 1),
            ("1e-99999999999", 1),
            ("0.30000000000000004", 300_000_000_001),
            ("1000000", 1_000_000_000_000_000_000),
            ("0.000000000000000000000000000000000000000000000001", 1),
            ("00000000000000000000000000000000000000000000000001", 1_000_000_000_000),
        ] {
            assert_eq!(told(text), Some(picos), "{text}");
        }
        for text in [
            "",
            ".",
            "-",
            "-1",
            "-1e-30",
            "nan",
            "NaN",
            "inf",
            "1e",
            "1e+",
            "1e1.5",
            "1..2",
            "1.2.3",
            "0x1",
            "1_0",
            " 1",
            "1000000.000000000001",
            "1e400",
            "1e99999999999",
            "99999999999999999999999999999999999999999999",
        ] {
            assert_eq!(told(text), None, "{text}");
        }
        assert_eq!(Money::reported("123", 2).map(Money::picos), Some(12_300), "ticks of 10^-10 dollars");
    }

    #[test]
    fn what_people_write() {
        assert_eq!(Money::typed("2.50").map(Money::picos), Some(2_500_000_000_000));
        assert_eq!(Money::typed("0.000000000001").map(Money::picos), Some(1));
        for bad in
            ["", ".5", "5.", "-1", "+1", "1e3", "nan", "inf", "1,5", "$1", " 1", "1000001", "1.0000000000001"]
        {
            assert_eq!(Money::typed(bad), None, "{bad}");
        }
    }

    #[test]
    fn shown() {
        let shown = |picos| Money::from_picos(picos).to_string();
        assert_eq!(shown(1_200_000_000_000), "$1.2000");
        assert_eq!(shown(12_300_000_000), "$0.0123");
        assert_eq!((shown(0), shown(5_000_000)), ("$0.0000".into(), "$0.000005".into()));
        assert_eq!((shown(999_999_999_999), shown(u64::MAX)), ("$1.0000".into(), "$18446744.0737".into()));
        assert_eq!(Money::from_picos(12_300_000_000).dollars(), 0.0123);
    }

    /// Against exact sums of 128 bits, with numbers from a generator; beyond the largest amount a sum stays there.
    #[test]
    fn sums_are_exact_or_saturate() {
        let mut seed = 0x9E37_79B9_7F4A_7C15u64;
        let mut next = |bits: u32| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed >> (64 - bits)
        };
        for round in 0..2_000 {
            let (mut sum, mut exact) = (Money::default(), 0u128);
            for _ in 0..64 {
                let (tokens, each) = (next(1 + round % 53), next(1 + round % 30));
                sum = sum.plus(Money::of(tokens, each));
                exact += u128::from(tokens) * u128::from(each);
            }
            assert_eq!(u128::from(sum.picos()), exact.min(u128::from(u64::MAX)), "round {round}");
        }
    }

    /// A number written with n decimals reads back as itself.
    #[test]
    fn every_amount_reads_back() {
        let mut picos = 1u64;
        while picos < 1_000_000_000_000_000_000 {
            let text = format!("{}.{:012}", picos / 1_000_000_000_000, picos % 1_000_000_000_000);
            assert_eq!(told(&text), Some(picos));
            assert_eq!(told(&format!("{picos}e-12")), Some(picos));
            picos = picos * 7 / 3 + 1;
        }
    }
}
