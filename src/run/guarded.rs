//! What a run guards beside the provider key: the values of `--secret-env`, and the canary that `--canary` plants. Both go with the key
//! to the relay, which ends the run where a request holds one. Called by `main` and `life`.

use crate::error::Error;
use crate::limits;
use crate::relay::leak::CANARY;
use crate::relay::search::Named;
use crate::run::key::{From, Taken};
use crate::secret::Secret;
use crate::sys::{env, proc};
use std::io;

/// Takes the named variables out of the environment. `key`: where the provider key comes from, which is guarded anyway.
pub fn take(names: &[String], key: &From, taken: &mut Taken) -> Result<Vec<Named>, Error> {
    let mut all: Vec<Named> = Vec::new();
    let mut bytes = 0usize;
    for typed in names {
        // Whoever typed NAME=VALUE has told enough already.
        let name = typed.split('=').next().unwrap_or_default();
        let refused = |why: &str| Error::wrong("take", format!("--secret-env {name}"), why);
        let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        if name != typed || name.is_empty() || !name.bytes().all(letter) {
            return Err(refused("it must be the name of a variable, and no more"));
        }
        if env::reads(name) {
            return Err(refused("this program reads that variable itself: it is no secret"));
        }
        if matches!(key, From::Variable { name: own, .. } if own == name) {
            return Err(refused("it is the provider key, which is searched for anyway"));
        }
        if all.iter().any(|n| n.name == name) {
            return Err(refused("it is given twice"));
        }
        let value = taken.take(name).ok_or_else(|| refused("it is not set, or is empty"))?;
        if value.len() < limits::SECRET_LEAST {
            let why = format!(
                "its value has {} bytes; under {} it would stand in innocent requests, and each would end the run",
                value.len(),
                limits::SECRET_LEAST
            );
            return Err(refused(&why));
        }
        bytes = bytes.saturating_add(value.len());
        if bytes > limits::SECRETS_BYTES {
            return Err(refused(&format!("all together have more than {} bytes", limits::SECRETS_BYTES)));
        }
        all.push(Named { name: name.into(), value });
    }
    Ok(all)
}

/// A value that nobody has any business with, as a file of credentials that a thief looks for.
pub struct Canary {
    value: String,
}

impl Canary {
    /// Below `$HOME` of the box.
    pub const PLACE: &'static str = ".aws/credentials";

    /// A fresh one, with the looks of an access key of Amazon's.
    pub fn new() -> io::Result<Canary> {
        Ok(Canary { value: proc::random_hex(20)? })
    }

    /// The file's content.
    pub fn file(&self) -> String {
        let id = self.value.get(..16).unwrap_or_default().to_ascii_uppercase();
        format!("[default]\naws_access_key_id = AKIA{id}\naws_secret_access_key = {}\n", self.value)
    }

    /// What the relay looks for.
    pub fn named(&self) -> Named {
        Named { name: CANARY.into(), value: Secret::new(self.value.clone().into_bytes()) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Canary, take};
    use crate::run::key::{From, Taken};
    use crate::secret::Secret;

    fn taken(all: &[(&str, &str)]) -> Taken {
        let secret =
            |(name, value): &(&str, &str)| (name.to_string(), Secret::new(value.as_bytes().to_vec()));
        Taken::of(all.iter().map(secret).collect())
    }

    #[test]
    fn names_and_values_that_are_refused() {
        let key = From::Variable { name: "ANTHROPIC_API_KEY".into(), credentials: None };
        let long = "0123456789abcdef";
        for (names, why) in [
            (vec!["SHORT"], "15 bytes"),
            (vec!["NOT_SET_ANYWHERE_1"], "not set"),
            (vec!["GOOD", "GOOD"], "twice"),
            (vec!["GOOD=hunter2hunter2"], "the name of a variable"),
            (vec![""], "the name of a variable"),
            (vec!["HOME"], "itself"),
            (vec!["PATH"], "itself"),
            (vec!["ANTHROPIC_API_KEY"], "anyway"),
            (vec!["HUGE"], "more than"),
        ] {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            let huge = "x".repeat(40_000);
            let mut taken =
                taken(&[("SHORT", &long[1..]), ("GOOD", long), ("HUGE", &huge), ("ANTHROPIC_API_KEY", long)]);
            let Err(e) = take(&names, &key, &mut taken) else { panic!("{names:?}") };
            let said = e.to_string();
            assert!(said.contains(why) && !said.contains("hunter2") && !said.contains(&long[1..]), "{said}");
        }
        let mut taken = taken(&[("GOOD", long), ("ANTHROPIC_API_KEY", long)]);
        let names = ["GOOD".to_string(), "ANTHROPIC_API_KEY".to_string()];
        assert_eq!(take(&names, &From::Fd(3), &mut taken).map(|n| n.len()).ok(), Some(2));
    }

    #[test]
    fn a_canary_is_in_its_file() {
        let (one, two) = (Canary::new().unwrap(), Canary::new().unwrap());
        assert!(one.file().contains(&one.value) && one.value.len() == 40 && one.value != two.value);
        assert_eq!(one.named().value.len(), 40);
    }
}
