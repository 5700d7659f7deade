//! A price file of the operator: what a model's tokens cost, as read on a day. None is shipped. TOML, strictly: an unknown member, a price
//! that is no plain decimal, a missing date is an error with line and column. Called by `relay/caps`.
//!
//! ```toml
//! date = "2026-11-30"                 # when it was read; source = "…" may say where
//! [models."some-model"]               # the name, exactly as requests have it
//! also = ["some-model-20261101"]      # further exact names
//! input = "3.00"                      # dollars per million tokens, at most six decimals
//! output = "15.00"
//! cache_read = "0.30"
//! cache_write_5m = "3.75"             # or cache_write for both
//! cache_write_1h = "6.00"
//! media_tokens = 5000                 # the most one image or document can count; without it --budget-mode strict takes none
//! [models."some-model".long]          # rates of a call with more input than this
//! above = 200000
//! input = "6.00"                      # and so on, all of them
//! ```

use crate::limits::{MODEL_CHARS, PRICED_MODELS};
use crate::wire::money::Money;
use crate::wire::text;
use crate::wire::toml::{self, Entry, Place, Table, Value};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Prices of one day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// `YYYY-MM-DD`.
    pub date: String,
    /// By every name a model has.
    pub models: BTreeMap<String, Model>,
}

/// What a model costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The usual rates.
    pub base: Rates,
    /// Input tokens above which `long` holds, for the whole call.
    pub long: Option<(u64, Rates)>,
    /// The most tokens one image or document can count.
    pub media_tokens: Option<u64>,
}

/// Picodollars a token, which is millionths of a dollar a million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    /// Input not from a cache.
    pub input: u64,
    /// Output, reasoning included.
    pub output: u64,
    /// Input from a cache.
    pub cache_read: u64,
    /// Input written to a cache for five minutes.
    pub cache_write_5m: u64,
    /// Input written to a cache for an hour.
    pub cache_write_1h: u64,
}

impl Rates {
    /// The dearest a token of input can be.
    pub fn dearest_input(&self) -> u64 {
        self.input.max(self.cache_read).max(self.cache_write_5m).max(self.cache_write_1h)
    }
}

/// Reads a whole file. The error is `LINE:COLUMN: why`.
pub fn parse(text: &str) -> Result<Prices, String> {
    let top = toml::parse(text).map_err(|bad| bad.to_string())?;
    only(&top, "", &["date", "source", "models"])?;
    let date = match top.entries.get("date") {
        Some(Entry { value: Value::String(date), .. }) if is_date(date) => date.clone(),
        Some(entry) => return Err(at(entry.at, "date", "it must be a text such as \"2026-11-30\"")),
        None => {
            return Err(
                "1:1: date is missing: say when the prices were read, as date = \"2026-11-30\"".into()
            );
        }
    };
    if let Some(entry) = top.entries.get("source").filter(|e| !matches!(e.value, Value::String(_))) {
        return Err(at(entry.at, "source", "it must be a text"));
    }
    let mut prices = Prices { date, models: BTreeMap::new() };
    let none = || "1:1: there is no model: write [models.\"NAME\"]".to_string();
    let Entry { value: Value::Table(models), .. } = top.entries.get("models").ok_or_else(none)? else {
        return Err(none());
    };
    for (name, entry) in &models.entries {
        let Value::Table(table) = &entry.value else {
            return Err(at(
                entry.at,
                name,
                "a model is a table: write [models.\"NAME\"], the name in quotation marks",
            ));
        };
        let (model, also) = model(name, entry.at, table)?;
        for name in std::iter::once(name).chain(&also) {
            named(&mut prices, name, model, entry.at)?;
        }
    }
    if prices.models.is_empty() { Err(none()) } else { Ok(prices) }
}

fn named(prices: &mut Prices, name: &str, model: Model, place: Place) -> Result<(), String> {
    if name.is_empty() || name.len() > MODEL_CHARS || name.contains(char::is_control) {
        return Err(at(place, name, "that is no name of a model"));
    }
    if prices.models.insert(name.to_string(), model).is_some() {
        return Err(at(place, name, "this name has two prices"));
    }
    if prices.models.len() > PRICED_MODELS {
        return Err(at(place, name, "the file names too many models"));
    }
    Ok(())
}

const RATES: [&str; 6] = ["input", "output", "cache_read", "cache_write", "cache_write_5m", "cache_write_1h"];

/// A model, and its further names.
fn model(name: &str, place: Place, table: &Table) -> Result<(Model, Vec<String>), String> {
    let mut known = RATES.to_vec();
    known.extend(["also", "media_tokens", "long"]);
    only(table, name, &known)?;
    let mut also = Vec::new();
    match table.entries.get("also").map(|e| (e.at, &e.value)) {
        None => {}
        Some((place, Value::Array(names))) => {
            for value in names {
                let Value::String(more) = value else {
                    return Err(at(place, name, "also is a list of texts"));
                };
                also.push(more.clone());
            }
        }
        Some((place, _)) => return Err(at(place, name, "also is a list of texts")),
    }
    let long = match table.entries.get("long").map(|e| (e.at, &e.value)) {
        None => None,
        Some((place, Value::Table(long))) => {
            let mut known = RATES.to_vec();
            known.push("above");
            let of = format!("{name}.long");
            only(long, &of, &known)?;
            let above = whole(long, &of, "above")?.ok_or_else(|| at(place, &of, "above is missing"))?;
            Some((above, rates(&of, place, long)?))
        }
        Some((place, _)) => return Err(at(place, name, "long is a table")),
    };
    let media_tokens = whole(table, name, "media_tokens")?;
    Ok((Model { base: rates(name, place, table)?, long, media_tokens }, also))
}

fn rates(name: &str, place: Place, table: &Table) -> Result<Rates, String> {
    let needed = |member: &str| {
        rate(table, name, member)?.ok_or_else(|| at(place, name, &format!("{member} is missing")))
    };
    let both = rate(table, name, "cache_write")?;
    let write = |member: &str| match (both, rate(table, name, member)?) {
        (Some(_), Some(_)) => Err(at(place, name, &format!("cache_write and {member}: give one of the two"))),
        (Some(rate), None) | (None, Some(rate)) => Ok(rate),
        (None, None) => Err(at(place, name, &format!("{member} is missing (or cache_write for both)"))),
    };
    Ok(Rates {
        input: needed("input")?,
        output: needed("output")?,
        cache_read: needed("cache_read")?,
        cache_write_5m: write("cache_write_5m")?,
        cache_write_1h: write("cache_write_1h")?,
    })
}

/// Dollars a million tokens, as a text or a whole number.
fn rate(table: &Table, name: &str, member: &str) -> Result<Option<u64>, String> {
    let Some(entry) = table.entries.get(member) else { return Ok(None) };
    let text = match &entry.value {
        Value::String(text) => text.clone(),
        Value::Integer(n) => n.to_string(),
        _ => String::new(),
    };
    // Whole millionths: a rate has no fraction of a picodollar a token.
    let picos = Money::typed(&text).map(Money::picos).filter(|p| p.checked_rem(1_000_000) == Some(0));
    match picos.and_then(|p| p.checked_div(1_000_000)) {
        Some(rate) => Ok(Some(rate)),
        None => {
            let why = format!(
                "{member} must be dollars per million tokens, such as \"3.00\", with at most six decimals"
            );
            Err(at(entry.at, name, &why))
        }
    }
}

fn whole(table: &Table, name: &str, member: &str) -> Result<Option<u64>, String> {
    let Some(entry) = table.entries.get(member) else { return Ok(None) };
    match entry.value {
        Value::Integer(n @ 1..) => Ok(u64::try_from(n).ok()),
        _ => Err(at(entry.at, name, &format!("{member} must be a whole number above 0"))),
    }
}

fn only(table: &Table, of: &str, known: &[&str]) -> Result<(), String> {
    match table.entries.iter().find(|(name, _)| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some((name, entry)) => Err(at(
            entry.at,
            of,
            &format!("{} is unknown; known are {}", text::short(name, 60), known.join(", ")),
        )),
    }
}

fn at(place: Place, of: &str, why: &str) -> String {
    let of = if of.is_empty() { String::new() } else { format!("{}: ", text::short(of, 60)) };
    format!("{}:{}: {of}{why}", place.line, place.column)
}

/// Months and days are only looked at roughly: the date is for people.
fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let number = |at: usize, length: usize| {
        let part = parts.get(at).filter(|p| p.len() == length && p.bytes().all(|b| b.is_ascii_digit()));
        part.and_then(|p| p.parse::<u32>().ok())
    };
    let (Some(year), Some(month), Some(day), 3) = (number(0, 4), number(1, 2), number(2, 2), parts.len())
    else {
        return false;
    };
    year >= 2000 && (1..=12).contains(&month) && (1..=31).contains(&day)
}

#[cfg(test)]
mod tests {
    use super::{Rates, parse};

    const GOOD: &str = "date = \"2026-11-30\"\n[models.\"m-1\"]\nalso = [\"m\"]\ninput = 3\noutput = \"15.00\"\ncache_read = \"0.30\"\n\
        cache_write_5m = \"3.75\"\ncache_write_1h = \"6\"\n[models.m-2]\ninput = \"0.000001\"\noutput = \"0\"\ncache_read = 0\ncache_write = 0\n\
        media_tokens = 5000\n[models.m-2.long]\nabove = 200000\ninput = 6\noutput = 1\ncache_read = 1\ncache_write = 9\n";

    #[test]
    fn a_price_is_picodollars_a_token() {
        let prices = parse(GOOD).unwrap();
        let m = prices.models["m"];
        assert_eq!(m, prices.models["m-1"]);
        let rates = Rates {
            input: 3_000_000,
            output: 15_000_000,
            cache_read: 300_000,
            cache_write_5m: 3_750_000,
            cache_write_1h: 6_000_000,
        };
        assert_eq!((m.base, m.base.dearest_input()), (rates, 6_000_000));
        let small = prices.models["m-2"];
        assert_eq!((small.base.input, small.media_tokens), (1, Some(5000)));
        assert_eq!(
            small.long.map(|(above, rates)| (above, rates.cache_write_1h)),
            Some((200_000, 9_000_000))
        );
        assert!(!prices.models.contains_key("M-1") && prices.models.len() == 3);
    }

    #[test]
    fn refusals_say_where_and_what() {
        for (from, to, want) in [
            ("date = \"2026-11-30\"\n", "", "1:1: date is missing"),
            ("2026-11-30", "yesterday", "1:1: date: it must"),
            ("2026-11-30", "2026-13-30", "1:1: date: it must"),
            ("input = 3", "input = -3", "4:1: m-1: input must be dollars"),
            ("input = 3", "input = \"nan\"", "4:1: m-1: input must be dollars"),
            ("input = 3", "input = \"inf\"", "4:1: m-1: input must"),
            ("input = 3", "input = \"1e3\"", "4:1: m-1: input must"),
            ("input = 3", "input = \"0.0000001\"", "4:1: m-1: input must"),
            ("input = 3", "input = true", "4:1: m-1: input must"),
            ("input = 3", "", "2:9: m-1: input is missing"),
            ("input = 3", "inputs = 3", "4:1: m-1: inputs is unknown"),
            ("cache_read = \"0.30\"", "", "2:9: m-1: cache_read is missing"),
            ("cache_write_1h = \"6\"", "", "2:9: m-1: cache_write_1h is missing"),
            ("cache_write_1h = \"6\"", "cache_write = 6", "m-1: cache_write and cache_write_5m"),
            ("[\"m\"]", "[\"m-2\"]", "this name has two prices"),
            ("[\"m\"]", "\"m\"", "3:1: m-1: also is a list"),
            ("above = 200000", "above = 0", "m-2.long: above must be"),
            ("above = 200000\n", "", "m-2.long: above is missing"),
            ("5000", "\"5000\"", "media_tokens must be"),
            ("[models.m-2]", "[model.m-2]", "model is unknown"),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD, "{from}");
            let why = parse(&text).err().unwrap_or_default();
            assert!(why.contains(want), "{from} -> {to}: {why}");
        }
        assert!(parse("date = \"2026-11-30\"\n").is_err_and(|e| e.contains("no model")));
        assert!(parse("input = 3.0").is_err());
    }
}
