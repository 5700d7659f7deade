//! What the asker of a run and its keeper say to each other, a JSON line each: `Order` down, `Said` up. Both ends are this program,
//! over pipes nobody else has. Used by `held`, `follow` and `keeper`.

use crate::relay;
use crate::run::daemon::Daemon;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// First line on the keeper's standard input.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// The run.
    pub id: String,
    /// Absolute path of the engine.
    pub engine: PathBuf,
    /// Uid and gid the engine is started as; none: ours.
    pub user: Option<(u32, u32)>,
    /// The box is a container; none: a process of ours.
    pub container: Option<Container>,
    /// Name of the channel directory, and the uid it belongs to.
    pub channel: (String, u32),
    /// The directory of records.
    pub runs: PathBuf,
    /// Handed on to the relay; its descriptors are inherited from us. None in open mode.
    pub relay: Option<relay::start::Order>,
}

/// A box that an engine's daemon owns.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Container {
    /// Whom to ask.
    pub daemon: Daemon,
    /// `--keep`: at an orderly end it is stopped and left.
    pub keep: bool,
}

/// After `go ` on a line of its own, once the relay serves: the box may start.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Go {
    /// The engine's arguments.
    pub args: Vec<String>,
}

/// What the keeper says on its standard output, a JSON line each.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Said {
    /// The engine runs with this pid.
    BoxStarted(Started),
    /// The box's first process, as the host sees it.
    BoxPid(Started),
    /// The container runs.
    Container(Contained),
    /// It was asked for and is not gone.
    BoxRuns,
    /// The box is gone, unasked.
    BoxExited(Exited),
    /// The engine does not answer either: why.
    BoxUnknown(Failed),
    /// The relay is gone, unasked.
    RelayExited(Exited),
    /// Something could not be started or removed.
    Failed(Failed),
    /// Box and relay are gone, and the channel directory with them.
    Gone(Gone),
}

/// A process.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Started {
    /// Its pid.
    pub pid: u32,
}

/// A container.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Contained {
    /// Its id.
    pub id: String,
}

/// How a child ended.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Exited {
    /// `code 1` or `signal 9`.
    pub how: String,
    /// The code alone.
    pub code: Option<i32>,
    /// The end of its standard error, as it came.
    pub words: String,
}

/// What went wrong.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Failed {
    /// It was the engine that could not be started.
    pub engine: bool,
    /// One clause.
    pub why: String,
}

/// The last word.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Gone {
    /// Why the channel directory is still there; empty: it is not.
    pub left: String,
}

/// A JSON line.
pub fn line(value: &impl Serialize) -> std::io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value).map_err(std::io::Error::other)?;
    line.push(b'\n');
    Ok(line)
}
