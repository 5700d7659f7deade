//! What a run prints: progress on standard error, the answer on standard output. Everything that came from the box, the network or a
//! file is escaped here. A closed pipe is no error. Called by `life`, `follow` and `sweep`.

use crate::limits;
use crate::relay::bodies::Kept;
use crate::relay::note::{Again, Call, Denied};
use crate::run::read::Trace;
use crate::run::receipt::Tally;
use crate::sys::env::Env;
use crate::sys::pipes;
use crate::sys::proc;
use crate::wire::text;
use std::io::Write;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Characters of one trace line where no terminal says how many fit.
const WIDTH: usize = 160;

/// Where and how to print.
pub struct Show {
    quiet: bool,
    /// Standard error is a terminal that can redraw its last line: its width.
    live: Option<usize>,
    color: bool,
    /// A status line stands on the screen.
    drawn: bool,
    /// Standard error took nothing for `SHOW_STALL`; until it does again, lines are dropped at once.
    stalled: bool,
    since: Instant,
}

impl Show {
    /// `quiet` silences the trace, not notes nor the summary.
    pub fn new(quiet: bool, env: &Env) -> Show {
        let stderr = std::io::stderr();
        let terminal = proc::is_terminal(stderr.as_fd()) && env.terminal;
        let width = proc::columns(stderr.as_fd()).map_or(80, usize::from);
        Show {
            quiet,
            live: terminal.then_some(width.max(20)),
            color: terminal && !env.no_color,
            drawn: false,
            stalled: false,
            since: Instant::now(),
        }
    }

    /// The elapsed time starts to count.
    pub fn begin(&mut self) {
        self.since = Instant::now();
    }

    /// A line of ours.
    pub fn note(&mut self, line: &str) {
        self.line(&format!("sanduk: {}", text::escaped(line)));
    }

    /// Something the agent did.
    pub fn trace(&mut self, trace: &Trace) {
        if self.quiet {
            return;
        }
        let width = self.live.map_or(WIDTH, |w| w.saturating_sub(5));
        let (mark, words) = match trace {
            Trace::Text(words) => ('.', words.trim().to_string()),
            Trace::Tool(name, argument) => ('>', format!("{name} {argument}").trim().to_string()),
            Trace::Warning(words) => ('!', words.trim().to_string()),
        };
        if words.is_empty() {
            return;
        }
        let words = text::short(&words, width);
        match (self.color, mark) {
            (true, '>') => self.line(&format!("  \x1b[36m>\x1b[0m {words}")),
            (true, '!') => self.line(&format!("  \x1b[33m!\x1b[0m {words}")),
            _ => self.line(&format!("  {mark} {words}")),
        }
    }

    /// A call ended. On a terminal the status line tells it, elsewhere a line.
    pub fn call(&mut self, call: &Call, tally: &Tally) {
        if self.live.is_some() {
            return self.status(tally);
        }
        if self.quiet {
            return;
        }
        let mut line = format!("  = {} {} {} {}ms", call.method, call.path, call.status, call.millis);
        let counted = [
            ("in", call.input),
            ("cached", call.cache_read),
            ("written", call.cache_write),
            ("out", call.output),
        ];
        for (name, count) in counted {
            if let Some(count) = count.filter(|c| *c > 0) {
                line.push_str(&format!(" {name}={count}"));
            }
        }
        if call.owed && (call.guessed || (call.input.is_none() && call.output.is_none())) {
            line.push_str(" usage=?");
        }
        if let Some(cost) = call.cost {
            line.push_str(&format!(" {}{cost}", if call.guessed { "<=" } else { "" }));
        }
        if call.tries > 1 {
            line.push_str(&format!(" tries={}", call.tries));
        }
        for clamped in &call.clamped {
            line.push_str(&format!(" clamped={clamped}"));
        }
        if let Some(why) = &call.why {
            line.push_str(&format!(": {why}"));
        }
        self.line(&text::short(&line, 400));
    }

    /// A call waits for an overloaded provider.
    pub fn again(&mut self, again: &Again) {
        if !self.quiet {
            self.note(&again.line());
        }
    }

    /// A request body was kept.
    pub fn kept(&mut self, kept: &Kept) {
        if self.live.is_none() && !self.quiet {
            self.note(&text::short(&kept.line(), 400));
        }
    }

    /// A request was refused: also with `-q`, since the agent is not told which flag lifts it.
    pub fn denied(&mut self, denied: &Denied) {
        let mut line =
            format!("refused {} {} ({}): {}", denied.method, denied.path, denied.status, denied.why);
        if !denied.remedy.is_empty() {
            line.push_str(&format!("; {} lifts it", denied.remedy));
        }
        self.note(&text::short(&line, 400));
    }

    /// Draws the status line where there is one.
    pub fn status(&mut self, tally: &Tally) {
        let Some(width) = self.live.filter(|_| !self.quiet) else { return };
        let line = format!("{} · {} s", tally.words(), self.since.elapsed().as_secs());
        self.put(&format!("\r\x1b[K{}", text::short(&line, width.saturating_sub(1))));
        self.drawn = true;
    }

    /// The answer, where there is no report.
    pub fn answer(&mut self, words: &str) -> std::io::Result<()> {
        self.clear();
        // Piped, it is what the agent wrote; on a terminal it could act on it.
        let raw = !proc::is_terminal(std::io::stdout().as_fd());
        let mut out = std::io::stdout().lock();
        let text = match raw {
            true => words.to_string(),
            false => words.lines().map(text::escaped).collect::<Vec<_>>().join("\n"),
        };
        out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush())
    }

    fn line(&mut self, line: &str) {
        self.clear();
        self.put(&format!("{line}\n"));
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            self.put("\r\x1b[K");
        }
    }

    fn put(&mut self, text: &str) {
        let mut err = std::io::stderr().lock();
        // A page at a time: so much never blocks where poll(2) says that there is room.
        for piece in text.as_bytes().chunks(4096) {
            let wait = if self.stalled { Duration::ZERO } else { limits::SHOW_STALL };
            self.stalled = !pipes::takes_bytes(err.as_fd(), wait);
            if self.stalled || err.write_all(piece).is_err() {
                return;
            }
        }
    }
}
