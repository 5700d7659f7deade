//! Stub.

use crate::error::{Error, Exit};
use crate::run::key::Key;
use crate::run::spec::Spec;
use crate::sys::env::Env;

/// One run, from its record to its receipt. `key` is empty where the provider needs none.
pub fn run(spec: Spec, key: Key, env: &Env) -> Result<Exit, Error> {
    let _ = (spec, key, env);
    todo!()
}
