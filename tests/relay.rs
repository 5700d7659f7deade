//! A relay process between a raw client and a provider that does what the test says: answers that are cut, late, malformed or dangerous;
//! the record; the key; the pool. Names begin with the number of the row or item they keep true.
#![expect(clippy::disallowed_methods, reason = "tests")]

#[path = "relay/bodies.rs"]
mod bodies;
#[path = "support/connect.rs"]
mod connect;
#[path = "relay/faults.rs"]
mod faults;
#[path = "relay/idle.rs"]
mod idle;
#[path = "relay/lists.rs"]
mod lists;
#[path = "relay/log.rs"]
mod log;
#[path = "relay/money.rs"]
mod money;
#[path = "relay/provider_side.rs"]
mod provider_side;
#[path = "relay/proxy.rs"]
mod proxy;
#[path = "relay/resources.rs"]
mod resources;
#[path = "relay/retry.rs"]
mod retry;
#[path = "relay/rig.rs"]
#[expect(dead_code, reason = "shared with relay_cases.rs")]
mod rig;
#[path = "relay/role.rs"]
mod role;
#[path = "relay/safety.rs"]
mod safety;
#[path = "relay/secrets.rs"]
mod secrets;
#[path = "relay/secure.rs"]
mod secure;
#[path = "relay/spare.rs"]
mod spare;
#[path = "relay/stalls.rs"]
mod stalls;
#[path = "relay/stunnel.rs"]
mod stunnel;
#[path = "relay/traps.rs"]
mod traps;
#[path = "relay/unsynced.rs"]
mod unsynced;
