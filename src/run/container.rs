//! The keeper's box on docker: started by `docker run -d` in a child that is never waited for, removed by its id. The daemon owns
//! the container, so what counts as its end is the daemon's word. Called by `keeper`.

use crate::engine::docker;
use crate::limits;
use crate::run::order::{self, Contained, Exited, Failed, Said};
use crate::run::watched::Watched;
use std::io;
use std::time::Duration;

/// See the file's head.
pub struct Container {
    order: order::Container,
    run: String,
    /// `docker run -d`, until it has ended.
    starting: Option<Watched>,
    id: Option<String>,
    /// The daemon may have been told to make it by a process that could not tell its id.
    unsure: bool,
}

impl Container {
    /// Starts it. `args`: from `run` on.
    pub fn start(order: &order::Container, run: &str, args: &[String]) -> io::Result<Container> {
        let child = order.daemon.start(args)?;
        Ok(Container {
            order: order.clone(),
            run: run.into(),
            starting: Some(Watched::new(child)),
            id: None,
            unsure: false,
        })
    }

    /// What happened since the last look, without waiting.
    pub fn look(&mut self) -> Option<Said> {
        let ended = self.starting.as_mut()?.look()?;
        let starting = self.starting.take()?;
        // Also where the start failed: then the container was made, and has to go.
        self.id = docker::id(&String::from_utf8_lossy(&starting.said));
        self.unsure = self.id.is_none() && ended.code.is_none();
        match (&self.id, ended.code) {
            (Some(id), Some(0)) => Some(Said::Container(Contained { id: id.clone() })),
            _ => {
                let words = docker::words(&ended.words);
                let why = if words.is_empty() { format!("docker ended with {}", ended.how) } else { words };
                Some(Said::Failed(Failed { engine: true, why }))
            }
        }
    }

    /// How it is, for an asker that gets no answer from the box.
    pub fn ask(&self) -> Said {
        let Some(id) = &self.id else { return Said::BoxRuns };
        let format = "{{.State.Running}} {{.State.ExitCode}} {{.State.OOMKilled}} {{.State.Error}}";
        let exited = |how: String, code| Said::BoxExited(Exited { how: how.clone(), code, words: how });
        match self.order.daemon.call(&["inspect", "--type", "container", "--format", format, id]) {
            Ok(answer) if answer.ok => {
                let mut parts = answer.out.trim().splitn(4, ' ');
                let (running, code) = (parts.next() == Some("true"), parts.next().unwrap_or_default());
                let memory = if parts.next() == Some("true") { ", out of memory" } else { "" };
                let error = parts.next().unwrap_or_default().trim();
                let more = if error.is_empty() { String::new() } else { format!(", {error}") };
                match running {
                    true => Said::BoxRuns,
                    false => exited(format!("code {code}{memory}{more}"), code.parse().ok()),
                }
            }
            Ok(answer) if docker::no_such(&answer.err) => exited("the container was removed".into(), None),
            Ok(answer) => exited(docker::words(&answer.err), None),
            Err(e) => exited(format!("docker: {e}"), None),
        }
    }

    /// Removes it, or stops it where it shall be kept. An error: it may still be there.
    pub fn end(&mut self, orderly: bool) -> io::Result<()> {
        if let Some(starting) = &mut self.starting {
            // Killed now, the command line would leave a container whose id nobody knows.
            let _ = starting.child.wait(limits::ENGINE_CALL);
            if self.look().is_none() {
                self.unsure = true;
                self.starting = None;
            }
        }
        let daemon = &self.order.daemon;
        match &self.id {
            Some(id) if self.order.keep && orderly => daemon.ask(&["stop", "-t", "2", id]).map(drop),
            // The daemon said this id in answer to our own `run`: its label is ours. Else the label is what is asked for.
            Some(id) => daemon.remove(id).or_else(|_| daemon.purge(&self.run, false)),
            None => daemon.purge(&self.run, self.unsure),
        }
    }

    /// How long a look may come late.
    pub fn pause(&self) -> Duration {
        if self.starting.is_some() { limits::ENGINE_LOOK } else { limits::KEEPER_LOOK }
    }
}
