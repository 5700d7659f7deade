//! The keeper's box on docker: started by `docker run -d` in a child that is never waited for, removed by its id. The daemon owns
//! the container, so what counts as its end is the daemon's word. Called by `keeper`.

use crate::engine::docker;
use crate::limits;
use crate::run::order::{self, Contained, Exited, Failed, Said};
use crate::run::watched::Watched;
use crate::sys::proc;
use std::io;
use std::time::{Duration, Instant};

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

/// What the daemon says of it.
enum State {
    /// Its first process, as the host sees it.
    Runs(u32),
    /// How, and the code where there is one.
    Ended(String, Option<i32>),
    /// It does not answer: why.
    Unknown(String),
}

fn exited(how: String, code: Option<i32>) -> Said {
    Said::BoxExited(Exited { how: how.clone(), code, words: how })
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

    /// How it is, for an asker that gets no answer from the box. Of one whose first process has just died the daemon says for a
    /// moment that it runs.
    pub fn ask(&self) -> Said {
        let until = Instant::now() + limits::ENGINE_SETTLES;
        loop {
            match self.state() {
                State::Runs(pid) if proc::start_time(pid).is_ok_and(|t| t.is_some()) => return Said::BoxRuns,
                State::Runs(_) if Instant::now() < until => std::thread::sleep(limits::KEEPER_LOOK),
                State::Runs(_) => return exited("its first process is gone".into(), None),
                State::Ended(how, code) => return exited(how, code),
                State::Unknown(why) => return Said::BoxUnknown(Failed { engine: true, why }),
            }
        }
    }

    /// One look.
    fn state(&self) -> State {
        let Some(id) = &self.id else { return State::Ended("docker has not started it yet".into(), None) };
        let format =
            "{{.State.Running}} {{.State.Pid}} {{.State.ExitCode}} {{.State.OOMKilled}} {{.State.Error}}";
        let out = match self.order.daemon.call(&["inspect", "--type", "container", "--format", format, id]) {
            Ok(answer) if answer.ok => answer.out,
            Ok(answer) if docker::no_such(&answer.err) => {
                return State::Ended("the container was removed".into(), None);
            }
            Ok(answer) => return State::Unknown(docker::words(&answer.err)),
            Err(e) => return State::Unknown(e.to_string()),
        };
        let mut parts = out.trim().splitn(5, ' ');
        let mut next = || parts.next().unwrap_or_default().trim();
        let (running, pid, code, memory, error) = (next(), next(), next(), next(), next());
        if running == "true" {
            return State::Runs(pid.parse().unwrap_or(0));
        }
        let memory = if memory == "true" { ", out of memory" } else { "" };
        let more = if error.is_empty() { String::new() } else { format!(", {error}") };
        State::Ended(format!("code {code}{memory}{more}"), code.parse().ok())
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
