//! What goes between the built-in agent's loop and the two protocols: one answer of the model, and what goes back for its tool
//! calls. Data only.

use serde_json::{Value, json};

/// A tool call as the model asked for it.
pub struct Call {
    /// Comes back with the result.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// The input as it came, JSON or not.
    pub input: String,
}

impl Call {
    /// The input for the history: providers refuse one that is no object.
    pub fn object(&self) -> Value {
        let read =
            if self.input.trim().is_empty() { Ok(json!({})) } else { serde_json::from_str(&self.input) };
        read.ok().filter(Value::is_object).unwrap_or_else(|| json!({}))
    }
}

/// Tokens and dollars of one call; what was not said is not zero.
#[derive(Default)]
pub struct Usage {
    /// Input, cached included.
    pub input: Option<u64>,
    /// Output.
    pub output: Option<u64>,
    /// Dollars, where the provider says so.
    pub cost: Option<f64>,
}

/// One whole answer of the model.
#[derive(Default)]
pub struct Reply {
    /// What it said.
    pub text: String,
    /// Tools it wants run, in order.
    pub calls: Vec<Call>,
    /// Why it ended.
    pub stop: Stop,
    /// What it used.
    pub usage: Usage,
}

/// Why an answer ended.
#[derive(Default)]
pub enum Stop {
    /// It was done, or wants tools run.
    #[default]
    Done,
    /// At the token cap.
    Capped,
    /// For a reason that is no good end; in the provider's word.
    Other(String),
}

/// What goes back for one tool call.
pub struct Answer {
    /// `Call::id`.
    pub id: String,
    /// Output, or what was wrong.
    pub text: String,
    /// The tool failed, or was asked wrongly.
    pub failed: bool,
}
