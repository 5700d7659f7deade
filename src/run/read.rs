//! Reads an agent's output by its rules: total over any bytes, no panic, bounded. Called by `life` with each event.

use crate::catalog::agents::Agent;
use crate::wire::control::What;

/// One thing worth showing while the run goes on. Text is as the agent gave it: escape it before printing.
#[derive(Debug, PartialEq, Eq)]
pub enum Trace {
    /// The agent said something.
    Text(String),
    /// A tool call: its name and a short argument.
    Tool(String, String),
    /// Something went wrong and the agent goes on.
    Warning(String),
}

/// What the agent said about its own end.
#[derive(Debug, Default, PartialEq)]
pub struct Outcome {
    /// There was a final record. Without one the run has failed, whatever the exit code.
    pub finished: bool,
    /// The final record said it went well.
    pub ok: bool,
    /// The answer.
    pub text: String,
    /// What went wrong, in the agent's words.
    pub error: String,
    /// Turns or steps it counted.
    pub turns: Option<u64>,
    /// Its session, for a follow-up.
    pub session: Option<String>,
    /// Tokens as the agent counted them (shown only where the relay saw none).
    pub input: Option<u64>,
    /// See `input`.
    pub output: Option<u64>,
}

/// The reader of one turn.
pub struct Reader {
    outcome: Outcome,
}

impl Reader {
    /// A fresh reader.
    pub fn new(agent: &Agent) -> Reader {
        let _ = agent;
        Reader { outcome: Outcome::default() }
    }

    /// Takes one event.
    pub fn push(&mut self, what: &What) -> Vec<Trace> {
        let _ = what;
        todo!()
    }

    /// What it amounts to; also when the turn was cut off.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }
}
