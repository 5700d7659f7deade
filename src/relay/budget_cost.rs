//! What a call costs by a price file: after it, from what the answer reported; before it, at most. Pure. A count that the wire leaves
//! open is read the dear way. Called by `relay/budget.rs`.

use crate::catalog::prices::{Model, Rates};
use crate::limits::{CALL_TOKENS, TOOL_TOKENS};
use crate::relay::policy_price::Terms;
use crate::relay::usage::Usage;
use crate::wire::money::Money;

/// All tokens that an answer reported. `inside`: see `catalog::providers::Provider::cached_inside`.
pub fn tokens(usage: &Usage, inside: bool) -> u64 {
    let parts = [usage.input, usage.cache_write, usage.cache_read, usage.output];
    let sum = parts.into_iter().flatten().fold(usage.elsewhere, u64::saturating_add);
    if inside { sum } else { sum.saturating_add(usage.doubtful) }
}

/// What the reported tokens cost. A part that was not reported adds nothing: see `whole`.
pub fn cost(model: &Model, usage: &Usage, inside: bool) -> Money {
    let part = |n: Option<u64>| n.unwrap_or(0);
    let full = part(usage.input).saturating_add(if inside { 0 } else { usage.doubtful });
    let (read, written) = (part(usage.cache_read), part(usage.cache_write));
    let all = full.saturating_add(read).saturating_add(written);
    let rates = match &model.long {
        Some((above, long)) if all > *above => long,
        _ => &model.base,
    };
    // What is not said to be kept for five minutes may be kept for an hour.
    let short = part(usage.cache_write_5m).min(written);
    let dear = rates.cache_write_5m.max(rates.cache_write_1h);
    [
        Money::of(full, rates.input),
        Money::of(read, rates.cache_read),
        Money::of(short, rates.cache_write_5m),
        Money::of(written.saturating_sub(short), dear),
        Money::of(part(usage.output), rates.output),
    ]
    .into_iter()
    .fold(Money::default(), Money::plus)
}

/// The answer reported all of what it is charged for.
pub fn whole(usage: &Usage) -> bool {
    usage.complete && usage.input.is_some() && usage.output.is_some()
}

/// The most input tokens a body of so many bytes can count: one a byte, since no token is shorter, and what the provider adds of its
/// own. None: it holds an image or a document, and nothing says how many tokens one can count.
pub fn most_input(bytes: u64, terms: &Terms, media_tokens: Option<u64>) -> Option<u64> {
    let media = match (terms.media, media_tokens) {
        (0, _) => 0,
        (n, Some(each)) => n.saturating_mul(each),
        (_, None) => return None,
    };
    let tools = terms.typed_tools.saturating_mul(TOOL_TOKENS);
    Some(bytes.saturating_add(CALL_TOKENS).saturating_add(media).saturating_add(tools))
}

/// The most that a call can cost.
pub fn most(model: &Model, input: u64, output: u64) -> Money {
    let (each, out) = dearest(model, input);
    Money::of(input, each).plus(Money::of(output, out))
}

/// The largest output bound with which a call fits into `left`; 0: none does.
pub fn output_that_fits(model: &Model, input: u64, left: Money) -> u64 {
    let (each, out) = dearest(model, input);
    let input = Money::of(input, each);
    if input >= left {
        return 0;
    }
    left.less(input).picos().checked_div(out).unwrap_or(u64::MAX)
}

/// The dearest rates of input and output that so much input can meet.
fn dearest(model: &Model, input: u64) -> (u64, u64) {
    let of = |rates: &Rates| (rates.dearest_input(), rates.output);
    let base = of(&model.base);
    match &model.long {
        Some((above, long)) if input > *above => {
            let long = of(long);
            (base.0.max(long.0), base.1.max(long.1))
        }
        _ => base,
    }
}

#[cfg(test)]
mod tests {
    use super::{cost, most, most_input, output_that_fits, tokens, whole};
    use crate::catalog::prices::{Model, Rates};
    use crate::relay::policy_price::Terms;
    use crate::relay::usage::Usage;
    use crate::wire::money::Money;

    const BASE: Rates = Rates {
        input: 3_000_000,
        output: 15_000_000,
        cache_read: 300_000,
        cache_write_5m: 3_750_000,
        cache_write_1h: 6_000_000,
    };
    const LONG: Rates = Rates { input: 6_000_000, output: 22_500_000, ..BASE };
    const MODEL: Model = Model { base: BASE, long: Some((1_000, LONG)), media_tokens: None };

    fn usage(input: u64, read: u64, write: u64, short: Option<u64>, output: u64) -> Usage {
        Usage {
            input: Some(input),
            cache_read: Some(read),
            cache_write: Some(write),
            cache_write_5m: short,
            output: Some(output),
            complete: true,
            owed: true,
            ..Usage::default()
        }
    }

    #[test]
    fn each_kind_of_token_has_its_price() {
        let picos = |u: &Usage| cost(&MODEL, u, true).picos();
        assert_eq!(picos(&usage(1, 0, 0, None, 0)), 3_000_000);
        assert_eq!(picos(&usage(0, 1, 0, None, 0)), 300_000);
        assert_eq!(picos(&usage(0, 0, 10, Some(4), 0)), 4 * 3_750_000 + 6 * 6_000_000);
        assert_eq!(picos(&usage(0, 0, 10, None, 0)), 60_000_000, "not said for how long: the dear way");
        assert_eq!(picos(&usage(0, 0, 10, Some(400), 0)), 37_500_000, "a part is no more than its whole");
        assert_eq!(picos(&usage(0, 0, 0, None, 2)), 30_000_000);
        assert_eq!(picos(&usage(1_000, 0, 0, None, 1)), 3_015_000_000);
        assert_eq!(picos(&usage(600, 401, 0, None, 1)), 600 * 6_000_000 + 401 * 300_000 + 22_500_000, "long");
    }

    #[test]
    fn cached_tokens_that_may_be_outside_are_charged_beside_the_input() {
        let mut told = usage(900, 100, 0, None, 0);
        told.doubtful = 100;
        assert_eq!(cost(&MODEL, &told, true).picos(), 900 * 3_000_000 + 100 * 300_000);
        assert_eq!(
            cost(&MODEL, &told, false).picos(),
            1000 * 6_000_000 + 100 * 300_000,
            "1,100 of input are long"
        );
        assert_eq!((tokens(&told, true), tokens(&told, false)), (1000, 1100));
        told.elsewhere = 7;
        assert_eq!(tokens(&told, true), 1007, "an advisor's tokens count too");
    }

    #[test]
    fn no_report_is_not_zero() {
        assert!(whole(&usage(0, 0, 0, None, 0)));
        for partial in [
            Usage { input: None, ..usage(1, 0, 0, None, 1) },
            Usage { output: None, ..usage(1, 0, 0, None, 1) },
            Usage { complete: false, ..usage(1, 0, 0, None, 1) },
            Usage::default(),
        ] {
            assert!(!whole(&partial));
        }
    }

    /// Whatever a server reports within a reservation's bounds costs no more than the reservation.
    #[test]
    fn no_split_of_the_tokens_costs_more_than_the_most() {
        let mut seed = 1u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below.max(1)
        };
        for _ in 0..20_000 {
            let (input, output) = (1 + next(3_000), next(5_000));
            let read = next(input + 1);
            let write = next(input - read + 1);
            let told = usage(input - read - write, read, write, Some(next(write + 1)), next(output + 1));
            let bound = most(&MODEL, input, output);
            assert!(cost(&MODEL, &told, true) <= bound, "{told:?}");
            let fits = output_that_fits(&MODEL, input, bound);
            assert!(fits >= output && most(&MODEL, input, fits) <= bound, "{input} {output} {fits}");
        }
        assert_eq!(output_that_fits(&MODEL, 10, Money::from_picos(59_999_999)), 0);
    }

    #[test]
    fn an_image_has_no_bound_but_the_operators() {
        let image = Terms { media: 2, typed_tools: 1, ..Terms::default() };
        assert_eq!(most_input(100, &image, None), None);
        assert_eq!(most_input(100, &image, Some(5_000)), Some(100 + 4096 + 1024 + 10_000));
        assert_eq!(most_input(100, &Terms::default(), None), Some(4196));
    }
}
