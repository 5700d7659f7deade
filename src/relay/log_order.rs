//! In which order the records of a call log may stand; numbers of calls. Called by `log_read`.

use crate::limits;
use crate::relay::record::{Record, Resumed};
use std::collections::BTreeMap;

/// What the records so far allow the next to be.
#[derive(Default)]
pub struct Order {
    /// Verdicts, which is the number of the last call.
    pub calls: u64,
    /// Calls since the last `start` that have a verdict and no outcome yet, and how often each was sent.
    pub open: BTreeMap<u64, u32>,
    /// The last record is an `end`.
    pub ended: bool,
    after_denied: bool,
}

impl Order {
    /// Takes the record in, or says why it cannot stand here.
    pub fn admit(&mut self, n: u64, record: &Record) -> Result<(), String> {
        let start = matches!(record, Record::Start(_));
        if n == 1 && !start {
            return Err("the first record is no start".into());
        }
        if self.ended && !start {
            return Err("a record after the end".into());
        }
        match record {
            Record::Start(s) => self.begin(n, s.resumed.as_ref())?,
            Record::Verdict(v) if v.call != self.calls.saturating_add(1) => {
                return Err(format!(
                    "verdict of call {} where call {} is due",
                    v.call,
                    self.calls.saturating_add(1)
                ));
            }
            Record::Verdict(_) if self.open.len() >= limits::LOG_IN_FLIGHT => {
                return Err("more calls in flight than any relay serves".into());
            }
            Record::Verdict(v) => {
                self.calls = v.call;
                self.open.insert(v.call, 1);
            }
            Record::Retry(r)
                if self.open.get(&r.call).is_none_or(|tries| tries.checked_add(1) != Some(r.r#try)) =>
            {
                return Err(format!("try {} of call {}, which is not due", r.r#try, r.call));
            }
            Record::Retry(r) => drop(self.open.insert(r.call, r.r#try)),
            Record::Outcome(o) => match self.open.remove(&o.call) {
                Some(tries) if tries == o.tries => {}
                Some(tries) => {
                    return Err(format!("outcome of call {} after {} tries, of {tries}", o.call, o.tries));
                }
                None if o.call > self.calls => {
                    return Err(format!("outcome of call {}, which has no verdict", o.call));
                }
                None => {
                    let why = "which has its outcome already, or was left open by an earlier relay";
                    return Err(format!("outcome of call {}, {why}", o.call));
                }
            },
            Record::DeniedAgain(a) if !self.after_denied || a.times == 0 => {
                return Err("a refusal repeated where none stands before".into());
            }
            Record::Denied(_) | Record::DeniedAgain(_) | Record::End(_) => {}
        }
        self.ended = matches!(record, Record::End(_));
        self.after_denied = matches!(record, Record::Denied(_));
        Ok(())
    }

    /// The first start says nothing of what was before it, unless that was nothing but a torn line; every other says it all.
    fn begin(&mut self, n: u64, resumed: Option<&Resumed>) -> Result<(), String> {
        let open = u64::try_from(self.open.len()).unwrap_or(u64::MAX);
        let right = match resumed {
            None => n == 1,
            Some(found) => {
                let due = Resumed { lines: n.saturating_sub(1), calls: self.calls, open, torn: found.torn };
                *found == due && (n > 1 || found.torn > 0)
            }
        };
        if !right {
            return Err("what it says it found before it (resumed) is not what stands there".into());
        }
        self.open.clear();
        Ok(())
    }
}
