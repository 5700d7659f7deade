//! Agents as data: `resources/agents/NAME.json`. How a turn is rendered and how the agent's output is read (reader rules).

use crate::catalog::providers::Protocol;
use crate::wire::control::Turn;

/// One agent.
pub struct Agent {
    /// As given to `--agent`.
    pub name: String,
    /// Protocols it can speak, best first.
    pub protocols: Vec<Protocol>,
    /// It reads the task on standard input, so a task has no size limit.
    pub task_on_stdin: bool,
}

/// What a turn is rendered from.
pub struct TurnInput<'a> {
    /// The turn's id.
    pub id: &'a str,
    /// The task, with the report instruction where wanted.
    pub task: &'a str,
    /// What the provider speaks, chosen from `Agent::protocols`.
    pub protocol: Protocol,
    /// `http://127.0.0.1:PORT` with the provider's prefix.
    pub base_url: &'a str,
    /// The run token.
    pub token: &'a str,
    /// `--model`.
    pub model: Option<&'a str>,
    /// `--max-turns`.
    pub max_turns: Option<u32>,
    /// The agent's home directory in the box.
    pub home: &'a str,
}

/// Names of the shipped agents, sorted.
pub fn names() -> Vec<&'static str> {
    todo!()
}

/// A shipped agent by name; the error is our own fault (a broken resource).
pub fn shipped(name: &str) -> Option<Agent> {
    let _ = name;
    todo!()
}

impl Agent {
    /// The process of one turn. `Err`: why this agent cannot take it, as a clause.
    pub fn render(&self, input: &TurnInput<'_>) -> Result<Turn, String> {
        let _ = input;
        todo!()
    }
}
