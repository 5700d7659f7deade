//! 64 calls at once against one dollar.

use crate::rig::{Provider, Relay, answer};
use crate::{
    Books, DOLLAR, PRICES, RATES, at_once, chat, costly_provider, dear_provider, lot, messages, outcomes,
    prices,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// `after`: crossed once, by one call; never two calls at the provider (TRAPS 74: the race between check and charge).
#[test]
fn trap_74_after_crosses_once() {
    let books = Arc::new(Books::default());
    let provider = costly_provider(&books, |n| 20_000_000_000 + lot(n, 90_000_000_000));
    let mut relay =
        Relay::start(&provider, &["--provider", "openrouter", "--budget", "1", "--log-dir", "log"]);
    let got = at_once(&relay, |_| chat());
    assert_eq!(relay.ended(), Some(5), "{:?}", relay.lines());
    let (sum, dearest) = (books.sum(), books.dearest.load(Ordering::SeqCst));
    assert!(sum >= DOLLAR && sum < DOLLAR + dearest, "{sum} of {DOLLAR}");
    assert_eq!(books.at_once.load(Ordering::SeqCst), 1, "one call at a time");
    assert!(got.iter().any(|s| s == "402"), "{got:?}");
    let charged: u64 = outcomes(&relay).iter().map(|o| o["charged_picodollars"].as_u64().unwrap()).sum();
    assert_eq!(charged, sum, "our sum is the provider's");
    relay.line("ended: ");
    let end = relay.records().last().unwrap()["why"].as_str().unwrap().to_string();
    assert!(end.contains("spent against a $1.0000 ceiling"), "{end}");
}

/// The earlier tool's own test (CHECKLIST F9): five calls of 0.40 against 1.00.
#[test]
fn three_of_five_pass() {
    let books = Arc::new(Books::default());
    let provider = costly_provider(&books, |_| 400_000_000_000);
    let relay = Relay::start(&provider, &["--provider", "openrouter", "--budget", "1.00"]);
    let got = at_once(&relay, |n| if n < 5 { chat() } else { "GET / HTTP/1.1\r\n\r\n".into() });
    let served = got.iter().filter(|s| *s == "200").count();
    assert_eq!((served, books.calls.load(Ordering::SeqCst)), (3, 3), "{got:?}");
    assert_eq!(books.sum(), 1_200_000_000_000);
}

/// `strict`: never over, with calls in flight beside each other, by the provider's own sum.
#[test]
fn strict_is_never_crossed() {
    let books = Arc::new(Books::default());
    let provider = dear_provider(&books, 30);
    let file = prices(PRICES);
    let args = [
        "--mode",
        "sealed",
        "--budget",
        "1",
        "--budget-mode",
        "strict",
        "--prices",
        &file,
        "--max-tokens-cap",
        "1000",
    ];
    let mut relay = Relay::start(&provider, &[&args[..], &["--log-dir", "log"]].concat());
    for _ in 0..8 {
        let got = at_once(&relay, |n| messages(2_000 + 50 * n));
        if got.iter().any(|s| s == "402") {
            break;
        }
    }
    assert_eq!(relay.ended(), Some(5), "{:?}", relay.lines());
    let sum = books.sum();
    assert!(sum <= DOLLAR, "{sum} of {DOLLAR}");
    // Not by refusing everything: what one more call could have cost is all that is left.
    let most = (4096 + 6_000) * RATES[4] + 1000 * RATES[1];
    assert!(sum + most > DOLLAR, "{sum} of {DOLLAR}");
    assert!(books.at_once.load(Ordering::SeqCst) > 1, "calls pass beside each other");
    let charged: u64 = outcomes(&relay).iter().map(|o| o["charged_picodollars"].as_u64().unwrap()).sum();
    assert_eq!(charged, sum);
    for verdict in relay.records().iter().filter(|r| r["kind"] == "verdict") {
        assert!(verdict["reserved_picodollars"].as_u64() > Some(0), "{verdict}");
    }
}

/// `--max-calls` lets exactly so many pass, beside each other; look-ups and token counting are none.
#[test]
fn a_number_of_calls_is_exact() {
    let books = Arc::new(Books::default());
    let provider = dear_provider(&books, 5);
    let mut relay = Relay::start(&provider, &["--max-calls", "10", "--log-dir", "log"]);
    let count = crate::request("anthropic", "/v1/messages/count_tokens", r#"{"model":"m","messages":[]}"#);
    for _ in 0..12 {
        assert_eq!(crate::rig::status(&crate::ask(&relay, &count)), "200");
    }
    let before = books.calls.load(Ordering::SeqCst);
    let got = at_once(&relay, |_| messages(10));
    assert_eq!(relay.ended(), Some(5));
    assert_eq!(books.calls.load(Ordering::SeqCst) - before, 10, "{got:?}");
    assert_eq!(got.iter().filter(|s| *s == "200").count(), 10, "those in flight end in order: {got:?}");
    relay.line("10 of 10 calls were made");
}

/// `--max-tokens-total` needs no prices; each warning comes once.
#[test]
fn tokens_are_capped_and_warned_of() {
    let body = r#"{"type":"message","stop_reason":"end_turn","usage":{"input_tokens":5,"cache_read_input_tokens":2,"output_tokens":3}}"#;
    let books = Arc::new(Books::default());
    let of = Arc::clone(&books);
    let provider = Provider::start(move |_, _| {
        of.book(10);
        of.done();
        vec![answer("200 OK", "Content-Type: application/json\r\n", body)]
    });
    let mut relay = Relay::start(&provider, &["--max-tokens-total", "100"]);
    let got = at_once(&relay, |_| messages(10));
    assert_eq!(relay.ended(), Some(5));
    assert_eq!((books.sum(), books.at_once.load(Ordering::SeqCst)), (100, 1), "{got:?}");
    for percent in ["50", "80", "95"] {
        let lines: Vec<String> =
            relay.lines().into_iter().filter(|l| l.contains(&format!("{percent} per cent used"))).collect();
        assert_eq!(lines.len(), 1, "{percent}: {:?}", relay.lines());
    }
    relay.line("50 per cent used: 50 of 100 tokens");
    relay.line("100 of 100 tokens were used");
}

/// `strict` bounds tokens too, without prices.
#[test]
fn strict_tokens_are_never_crossed() {
    let books = Arc::new(Books::default());
    let provider = dear_provider(&books, 5);
    let args = [
        "--mode",
        "sealed",
        "--budget-mode",
        "strict",
        "--max-tokens-total",
        "100000",
        "--max-tokens-cap",
        "1000",
    ];
    let mut relay = Relay::start(&provider, &[&args[..], &["--log-dir", "log"]].concat());
    let got = at_once(&relay, |_| messages(3_000));
    assert_eq!(relay.ended(), Some(5), "{got:?}");
    let used: u64 = outcomes(&relay)
        .iter()
        .map(|o| {
            ["input", "cache_read", "cache_write", "output"]
                .iter()
                .filter_map(|m| o[*m].as_u64())
                .sum::<u64>()
        })
        .sum();
    assert!(used <= 100_000 && used > 50_000, "{used}");
}
