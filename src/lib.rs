//! The map of the program, lowest layer first. An item's path is its file's path: no re-exports, no `mod.rs`.
//! `audit/layers.txt` says which folder may name which; `unsafe` stands in `sys/raw.rs` and nowhere else.

#[cfg(not(target_env = "musl"))]
compile_error!(
    "sanduk is built static: run `make build`, or `rustup target add x86_64-unknown-linux-musl` and build for it"
);

pub mod error;
pub mod limits;
#[forbid(unsafe_code)]
pub mod secret;

/// Pure: bytes to values and back. No input or output, no clock, no randomness.
#[forbid(unsafe_code)]
#[deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions
)]
pub mod wire {
    pub mod body;
    pub mod control;
    pub mod digest;
    pub mod duration;
    mod framing;
    pub mod head;
    pub mod http;
    pub mod json;
    pub mod json_text;
    pub mod money;
    pub mod probe;
    pub mod sse;
    pub mod status;
    pub mod text;
    pub mod toml;
    mod toml_reader;
    pub mod utc;
}

/// Effects: every system call of the program starts here. `raw` holds the only `unsafe`.
pub mod sys {
    #[forbid(unsafe_code)]
    pub mod attempt;
    #[forbid(unsafe_code)]
    pub mod confine;
    #[forbid(unsafe_code)]
    pub mod env;
    #[forbid(unsafe_code)]
    pub mod exec;
    #[forbid(unsafe_code)]
    pub mod file;
    #[forbid(unsafe_code)]
    mod filter;
    #[forbid(unsafe_code)]
    pub mod fresh;
    #[forbid(unsafe_code)]
    pub mod net;
    #[forbid(unsafe_code)]
    pub mod pipes;
    #[forbid(unsafe_code)]
    pub mod proc;
    #[expect(unsafe_code, reason = "the one place: system calls that rustix does not offer")]
    pub mod raw;
    #[forbid(unsafe_code)]
    pub mod serve;
    #[forbid(unsafe_code)]
    mod tree;
}

/// `resources/` and user files, given as bytes, to typed tables.
#[forbid(unsafe_code)]
pub mod catalog {
    pub mod agents;
    pub mod fields;
    pub mod images;
    pub mod prices;
    pub mod providers;
    pub mod rules;
    mod template;
}

/// What a box is (`plan`) and how an engine is told (`bwrap`, `docker`).
#[forbid(unsafe_code)]
pub mod engine {
    pub mod bwrap;
    pub mod docker;
    pub mod plan;
}

/// The one door to SQLite.
#[forbid(unsafe_code)]
pub mod store {
    pub mod open;
}

/// The guarded road to the provider: judge, record, inject, forward, count.
#[forbid(unsafe_code)]
#[deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
pub mod relay {
    pub mod admit;
    pub mod answer;
    pub mod bodies;
    mod body_words;
    pub mod budget;
    pub mod budget_cost;
    pub mod budget_read;
    pub mod caps;
    pub mod confinement;
    pub mod conn;
    pub mod exchange;
    pub mod foreground;
    pub mod forms;
    pub mod inflate;
    pub mod inject;
    pub mod leak;
    pub mod log;
    mod log_order;
    pub mod log_read;
    pub mod note;
    pub mod notes;
    pub mod open;
    pub mod policy;
    pub mod policy_fields;
    mod policy_forms;
    pub mod policy_price;
    pub mod policy_read;
    pub mod pool;
    pub mod preflight;
    pub mod proxy;
    pub mod receive;
    pub mod record;
    pub mod refuse;
    pub mod retry;
    pub mod search;
    pub mod secrets;
    pub mod serving;
    pub mod start;
    pub mod stunnel;
    pub mod tls;
    pub mod upstream;
    pub mod usage;
    pub mod usage_chat;
    pub mod usage_count;
    pub mod usage_messages;
    pub mod usage_responses;
    pub mod usage_scan;
}

/// One run: what it is, its record, its keeper, its report.
#[forbid(unsafe_code)]
pub mod run {
    pub mod asked;
    pub mod boxes;
    pub mod channel;
    pub mod container;
    pub mod control;
    pub mod daemon;
    pub mod dry;
    pub mod endpoint;
    pub mod follow;
    pub mod guarded;
    pub mod hand;
    pub mod held;
    pub mod image;
    pub mod keeper;
    pub mod key;
    pub mod life;
    pub mod modes;
    pub mod needs;
    pub mod order;
    pub mod place;
    pub mod read;
    pub mod receipt;
    pub mod report;
    pub mod shell;
    pub mod show;
    pub mod spec;
    pub mod state;
    pub mod sweep;
    pub mod watched;
}

/// What the owner of a host can see for himself, and what can be shown afterwards: the record of calls.
#[forbid(unsafe_code)]
pub mod prove {
    pub mod attest;
    pub mod audit;
    pub mod boxes;
    pub mod doctor;
    pub mod engines;
    pub mod explain;
    pub mod input;
    pub mod outside;
    pub mod provider;
    pub mod show;
    pub mod verdict;
    pub mod verify;
    pub mod watch;
}

/// The role that runs in the box as PID 1, and our built-in agent.
#[forbid(unsafe_code)]
pub mod inside {
    pub mod control;
    pub mod events;
    pub mod forward;
    pub mod lines;
    pub mod routes;
    pub mod start;
    pub mod supervise;
    pub mod switch;
    pub mod turn;
    /// The built-in agent.
    pub mod mini {
        pub mod agent;
        pub mod call;
        pub mod chat;
        pub mod messages;
        pub mod prompt;
        pub mod reply;
        pub mod tools;
    }
    /// The agent of `sanduk attest`.
    pub mod probe {
        pub mod kernel;
        pub mod keys;
        pub mod network;
        pub mod places;
        pub mod relay;
        pub mod start;
    }
}

/// The command line: one table, read by `parse`, shown by `pages`.
#[forbid(unsafe_code)]
pub mod cli {
    pub mod pages;
    pub mod parse;
    pub mod table;
}
