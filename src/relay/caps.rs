//! The caps of a run: what was typed, checked before anything starts. What cannot be counted is refused here, not guessed later.
//! Called by `run/spec` and `main`.

use crate::catalog::prices::{self, Prices};
use crate::catalog::providers::Provider;
use crate::error::Error;
use crate::limits;
use crate::relay::start::Grants;
use crate::sys::file;
use crate::wire::money::Money;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// As typed.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// `--budget`.
    pub budget: Option<String>,
    /// `--budget-mode`.
    pub mode: Option<String>,
    /// `--prices`.
    pub prices: Option<String>,
    /// `--max-calls`.
    pub max_calls: Option<u64>,
    /// `--max-tokens-total`.
    pub max_tokens_total: Option<u64>,
}

impl Asked {
    /// The first of these flags that was given.
    pub fn given(&self) -> Option<&'static str> {
        let all = [
            ("--budget", self.budget.is_some()),
            ("--budget-mode", self.mode.is_some()),
            ("--prices", self.prices.is_some()),
            ("--max-calls", self.max_calls.is_some()),
            ("--max-tokens-total", self.max_tokens_total.is_some()),
        ];
        all.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }
}

/// What holds. All of it is for all calls of the run together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caps {
    /// Money.
    pub budget: Option<Money>,
    /// `strict`: a call is let pass only where its most would fit. Else `after`: one call at a time, the last one crosses.
    pub strict: bool,
    /// Calls that generate.
    pub max_calls: Option<u64>,
    /// Input, cached input and output.
    pub max_tokens_total: Option<u64>,
    /// The operator's price file.
    pub prices: Option<Prices>,
}

impl Caps {
    /// Nothing is capped.
    pub fn none(&self) -> bool {
        self.budget.is_none() && self.max_calls.is_none() && self.max_tokens_total.is_none()
    }

    /// Money or tokens are: what a call used is known only behind it.
    pub fn by_use(&self) -> bool {
        self.budget.is_some() || self.max_tokens_total.is_some()
    }
}

/// `Caps` in the record of calls: without the prices themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capped {
    /// See `Caps`; so for all.
    pub budget_picodollars: Option<Money>,
    /// See above.
    pub strict: bool,
    /// See above.
    pub max_calls: Option<u64>,
    /// See above.
    pub max_tokens_total: Option<u64>,
    /// When the prices were read; none: there is no price file.
    pub prices: Option<String>,
}

impl Capped {
    /// None where nothing is capped or priced.
    pub fn of(caps: &Caps) -> Option<Capped> {
        (!caps.none() || caps.prices.is_some()).then(|| Capped {
            budget_picodollars: caps.budget,
            strict: caps.strict,
            max_calls: caps.max_calls,
            max_tokens_total: caps.max_tokens_total,
            prices: caps.prices.as_ref().map(|p| p.date.clone()),
        })
    }
}

/// Checks everything. `model`: what the agent will ask for, where that is known. Errors: exit 2.
pub fn settle(
    asked: &Asked,
    provider: &Provider,
    grants: &Grants,
    model: Option<&str>,
) -> Result<Caps, Error> {
    let budget = asked.budget.as_deref().map(dollars).transpose()?;
    let strict = match asked.mode.as_deref() {
        None | Some("after") => false,
        Some("strict") => true,
        Some(other) => {
            return Err(refused(format!("--budget-mode {other}"), "the modes are after and strict", ""));
        }
    };
    let caps = Caps {
        budget,
        strict,
        max_calls: asked.max_calls,
        max_tokens_total: asked.max_tokens_total,
        prices: asked.prices.as_deref().map(read_prices).transpose()?,
    };
    if asked.mode.is_some() && !caps.by_use() {
        return Err(refused(
            "--budget-mode".into(),
            "there is no budget",
            "give --budget or --max-tokens-total",
        ));
    }
    if caps.budget.is_some() {
        countable(&caps, provider, grants, model)?;
    }
    if strict {
        bounded(&caps, grants)?;
    }
    Ok(caps)
}

fn refused(what: String, why: &str, remedy: &str) -> Error {
    Error::wrong("take", what, why).remedy(remedy)
}

fn dollars(text: &str) -> Result<Money, Error> {
    Money::typed(text).filter(|m| *m > Money::default()).ok_or_else(|| {
        refused(
            format!("--budget {text}"),
            "it must be dollars above 0, such as 2.50, and at most 1000000",
            "",
        )
    })
}

fn read_prices(path: &str) -> Result<Prices, Error> {
    let most = u64::try_from(limits::TOML_BYTES).unwrap_or(u64::MAX);
    #[expect(clippy::disallowed_methods, reason = "FILE-38 --prices, read once at the start")]
    let bytes =
        file::read_named(Path::new(path), most).map_err(|e| Error::wrong("read the prices from", path, e))?;
    let text = String::from_utf8(bytes)
        .map_err(|_| Error::wrong("read the prices from", path, "the file is not UTF-8"))?;
    prices::parse(&text).map_err(|why| Error::wrong("read", "the prices", format!("{path}:{why}")))
}

/// Dollars can be told at all, and by what.
fn countable(caps: &Caps, provider: &Provider, grants: &Grants, model: Option<&str>) -> Result<(), Error> {
    let Some(prices) = &caps.prices else {
        if provider.reports_cost {
            return Ok(());
        }
        let why = format!("provider {} reports tokens, not cost", provider.name);
        return Err(refused("--budget".into(), &why, "give --prices FILE with what its models cost"));
    };
    if provider.reports_cost && !caps.strict {
        return Ok(());
    }
    let asked = grants.allow_models.iter().map(String::as_str).chain(model);
    for name in asked {
        if !prices.models.contains_key(name) {
            let why = format!("model {name} has no price in it, so none of its calls could be counted");
            return Err(refused("--prices".into(), &why, "add the model, by exactly this name"));
        }
    }
    if grants.allow_server_tools {
        let why = "what the provider's own tools cost beside their tokens is in no price file";
        return Err(refused("--budget with --allow-server-tools".into(), why, "leave one of the two out"));
    }
    Ok(())
}

/// The most a call can cost is known before it.
fn bounded(caps: &Caps, grants: &Grants) -> Result<(), Error> {
    let what = || "--budget-mode strict".to_string();
    if caps.budget.is_some() && caps.prices.is_none() {
        return Err(refused(
            what(),
            "without prices nothing can be reserved before a call",
            "give --prices FILE",
        ));
    }
    if grants.max_tokens_cap.is_none() {
        return Err(refused(what(), "nothing bounds what a call may put out", "give --max-tokens-cap N"));
    }
    if !grants.sealed {
        let why = "key-safe mode lets fields pass unread, and one of them could move the price";
        return Err(refused(what(), why, "use --mode sealed"));
    }
    if grants.allow_server_tools {
        let why = "what the provider's own tools add to a call has no bound";
        return Err(refused(
            format!("{} with --allow-server-tools", what()),
            why,
            "leave one of the two out",
        ));
    }
    if !grants.allow_fields.is_empty() {
        let why = "what stands in such a field is not judged, so it could move the price";
        return Err(refused(format!("{} with --allow-field", what()), why, "leave one of the two out"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Asked, settle};
    use crate::catalog::providers::shipped;
    use crate::relay::start::Grants;

    fn refusal(provider: &str, asked: Asked, grants: Grants) -> String {
        let provider = shipped(provider).unwrap();
        settle(&asked, &provider, &grants, None).err().map(|e| e.to_string()).unwrap_or_default()
    }

    fn budget(text: &str) -> Asked {
        Asked { budget: Some(text.into()), ..Asked::default() }
    }

    /// TRAPS 75: an infinite or undefined budget never ends a run.
    #[test]
    fn trap_75_a_budget_is_an_amount() {
        for bad in [
            "nan", "NaN", "inf", "-inf", "infinity", "-1", "0", "0.00", "", "1e3", "$1", "1,50", "two",
            "99999999",
        ] {
            assert!(
                refusal("openrouter", budget(bad), Grants::default()).contains("dollars above 0"),
                "{bad}"
            );
        }
        assert_eq!(refusal("openrouter", budget("2.50"), Grants::default()), "");
    }

    #[test]
    fn what_cannot_be_counted_is_refused_at_the_start() {
        let strict = |asked: Asked| Asked { mode: Some("strict".into()), ..asked };
        let capped = Grants { sealed: true, max_tokens_cap: Some(100), ..Grants::default() };
        for (provider, asked, grants, want) in [
            ("anthropic", budget("1"), Grants::default(), "reports tokens, not cost; give --prices"),
            ("openai", budget("1"), Grants::default(), "reports tokens, not cost"),
            ("openai-compat", budget("1"), Grants::default(), "reports tokens, not cost"),
            ("openrouter", strict(budget("1")), capped.clone(), "without prices nothing can be reserved"),
            ("openrouter", strict(Asked::default()), capped.clone(), "there is no budget"),
            (
                "openrouter",
                Asked { mode: Some("x".into()), ..budget("1") },
                capped.clone(),
                "after and strict",
            ),
            (
                "openrouter",
                Asked { prices: Some("/nonexistent".into()), ..budget("1") },
                capped.clone(),
                "cannot read the prices",
            ),
        ] {
            let why = refusal(provider, asked, grants);
            assert!(why.contains(want), "{want}: {why}");
        }
        let tokens = || strict(Asked { max_tokens_total: Some(9), ..Asked::default() });
        for (grants, want) in [
            (Grants { max_tokens_cap: None, ..capped.clone() }, "give --max-tokens-cap"),
            (Grants { sealed: false, ..capped.clone() }, "use --mode sealed"),
            (Grants { allow_server_tools: true, ..capped.clone() }, "--allow-server-tools"),
            (Grants { allow_fields: vec!["x".into()], ..capped.clone() }, "--allow-field"),
            (capped, ""),
        ] {
            let why = refusal("anthropic", tokens(), grants);
            assert!(why.contains(want) && (why.is_empty() == want.is_empty()), "{want}: {why}");
        }
    }
}
