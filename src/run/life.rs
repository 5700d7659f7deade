//! One run, as a recipe. What each step does stands in the file of its name; here stands only in which order, and how the run's end
//! becomes an exit code. Called by `main`.

use crate::engine::plan::{Engine, Mode};
use crate::engine::{bwrap, docker};
use crate::error::{Error, Exit};
use crate::limits;
use crate::relay::note::Stop;
use crate::run::control::Client;
use crate::run::follow::{self, Ending, Watch};
use crate::run::guarded::Canary;
use crate::run::held::{Held, Kept, LAST_LOOK, Names};
use crate::run::key::Key;
use crate::run::read::{Outcome, Reader};
use crate::run::receipt::{self, Account};
use crate::run::report::{self, Report};
use crate::run::show::Show;
use crate::run::spec::Spec;
use crate::run::{channel, dry, endpoint, hand, needs, state, sweep};
use crate::sys::env::Env;
use crate::sys::proc;
use crate::wire::control::Start;
use crate::wire::text;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// The receipt's name, beside the call log.
const RECEIPT: &str = "receipt.json";

/// One run, from its record to its receipt. `key` is empty where the provider needs none.
pub fn run(mut spec: Spec, key: Key, env: &Env) -> Result<Exit, Error> {
    if spec.dry_run {
        return dry::print(&spec);
    }
    let files = proc::allow_files(limits::FILES_WANTED).map_err(|e| Error::fault("read", "limits", e))?;
    if files < limits::FILES_LEAST {
        let why = format!("{files} open files are too few for relay and box");
        return Err(Error::wrong("start", "a run", why).remedy("raise the limit: ulimit -n 1024"));
    }
    // The key is still in this process: nobody may look into it, and no descriptor of the caller's goes on to a child.
    proc::harden(&[]).map_err(|e| Error::fault("harden", "this process", e))?;
    let names = Names::new()?;
    let (token, key) = match spec.mode {
        // The agent's own, worth nothing elsewhere; the key goes to the relay.
        Mode::Sealed | Mode::KeySafe => (names.token.clone(), key),
        Mode::Open => (key.into_text(), Key::none()),
    };
    // A flag that the agent does not take is refused here, before the engine is asked for anything.
    let mut start = hand::start(&spec, "1", &token, &names.control_secret)?;
    let key = if spec.canary { planted(&mut start, key)? } else { key };
    let start = serde_json::to_vec(&start).map_err(|e| Error::fault("write", "the hand-over", e))?;
    let mut show = Show::new(spec.quiet, env);
    let (tell, news) = mpsc::sync_channel(limits::NEWS);
    follow::signals(&tell)?;
    report::check(&spec)?;
    let state = state::open(env)?;
    sweep::sweep(&state, &mut show);
    let asked = needs::engine(&spec)?;
    needs::program(&spec)?;
    let key = if spec.mode == Mode::Open { key } else { endpoint::prepare(&mut spec, key)? };
    for line in &spec.notes {
        show.note(line);
    }

    let kept = Kept::make(&spec, &state, &names.id)?;
    let mut held = Held::start(&spec, asked.daemon.clone(), &state, &names, &kept, key)
        .inspect_err(|_| kept.discard())?;
    follow::pipes(held.pipes()?, &tell)?;
    let mut watch = Watch::new(news, &mut show);
    let mut reader = Reader::new(&spec.agent);
    let engine = match ready(&spec, &names, asked, &mut watch, &mut held) {
        Ok(engine) => engine,
        Err(ending) => {
            drop(held);
            kept.discard();
            return Err(ending);
        }
    };
    let (began, clock) = (proc::now(), proc::monotonic());
    let client =
        Client { dir: channel::path(&names.channel).join("box"), secret: names.control_secret.clone() };
    follow::events(client.clone(), start, &tell)?;
    let mut ending = watch.until_end(&mut reader, &mut held, spec.timeout);
    if matches!(ending, Ending::Turn) {
        // Only a courtesy to what the agent left running; the keeper ends it all the same.
        let _ = client.shutdown();
    }
    let removed = held.end();
    let last = if spec.mode == Mode::Open { None } else { watch.rest(LAST_LOOK) };
    if let (Ending::Turn, Some(stop)) = (&ending, last) {
        ending = stop;
    }
    let wall = proc::monotonic().saturating_sub(clock);
    let run = Ended { mode: spec.mode, id: &names.id, engine: &engine, kept: &kept, began, wall };
    let settled = account(&spec, &watch, reader.outcome(), &ending, &run);
    // The record goes last. Where something could not be removed it stays, and the next command tries again.
    if let Err(e) = removed.and_then(|()| held.forget()) {
        held.leave();
        watch.show.note(&format!("cannot remove all of the run: {e}; the next command tries again"));
    }
    if let Some(id) = held.stands() {
        // What makes a kept box ours for `ps` and `clean`, also where the receipt is elsewhere.
        let _ = state.receipts.make(&names.id, 0o700);
        watch
            .show
            .note(&format!("the box is kept, stopped; `docker rm -v {id}` or `sanduk clean` removes it"));
    }
    summary(settled, &mut watch, reader.outcome(), &run)
}

/// Puts the canary into the box's home and its value beside the key.
fn planted(start: &mut Start, key: Key) -> Result<Key, Error> {
    let canary = Canary::new().map_err(|e| Error::fault("draw", "a canary", e))?;
    start.turn.files.push((Canary::PLACE.into(), canary.file()));
    Ok(key.beside(vec![canary.named()]))
}

/// The relay serves, the engine has the image, the work directory is ready: the box may start. The error is the whole run's.
fn ready(
    spec: &Spec,
    names: &Names,
    asked: needs::Asked,
    watch: &mut Watch<'_>,
    held: &mut Held<'_>,
) -> Result<needs::Engine, Error> {
    let relay = match spec.mode {
        Mode::Open => Ok(()),
        Mode::Sealed | Mode::KeySafe => watch.until_ready(held),
    };
    relay.map_err(|ending| match ending {
        Ending::Relay(stop) => {
            let on = format!("{} at {}:{}", spec.provider.name, spec.upstream.host, spec.upstream.port);
            Error::new(exit_of(&stop), "start a run with", on, text::escaped(&stop.why))
        }
        Ending::Signal(number) => {
            Error::new(Exit::Signal(number), "start the box", "", format!("signal {number} came first"))
        }
        other => Error::fault("start", "the relay", verdict(spec, &other, &Outcome::default(), None).2),
    })?;
    let engine = asked.answer()?;
    let image = engine.docker.as_ref().map_or("", |(_, image)| &image.id);
    let args = hand::engine(spec, names, image)?;
    report::prepare(spec, watch.show)?;
    watch.show.begin();
    held.go(args)?;
    Ok(engine)
}

/// What is known of a run besides what happened in it.
struct Ended<'a> {
    mode: Mode,
    id: &'a str,
    engine: &'a needs::Engine,
    kept: &'a Kept,
    began: Duration,
    wall: Duration,
}

/// What became of a run, written down; not told yet.
struct Settled {
    exit: Exit,
    error: String,
    report: Option<String>,
    /// Lines that have to be said.
    notes: Vec<String>,
    /// The receipt was written.
    receipt: bool,
    /// A file of ours that could not be written.
    unwritten: Option<Error>,
}

/// After the end: set-id bits, report, receipt, statistics. Each is done whatever became of the others.
fn account(spec: &Spec, watch: &Watch<'_>, outcome: &Outcome, ending: &Ending, run: &Ended<'_>) -> Settled {
    let (cleared, unseen) = report::clear_set_id(spec);
    let mut notes: Vec<String> = cleared.iter().map(|p| format!("cleared the set-id bits of {p}")).collect();
    notes.extend(unseen.iter().map(|why| format!("cannot look for set-id bits in {why}")));
    let (mut exit, word, mut error) = capped(watch, ending)
        .unwrap_or_else(|| verdict(spec, ending, outcome, watch.agent.as_ref().and_then(|a| a.code)));
    if let (true, Some(docker)) = (outcome.unstarted, &spec.docker) {
        error.push_str(&format!("; the image is {}: does it have agent {}?", docker.image, spec.agent.name));
    }
    let report = match report::collect(spec) {
        Ok(Report::At(path)) => Some(path.display().to_string()),
        Ok(Report::No(why)) => {
            notes.push(why);
            None
        }
        Err(e) => {
            notes.push(e.to_string());
            if exit == Exit::Ok {
                (exit, error) = (e.exit(), "the report could not be copied".into());
            }
            None
        }
    };
    let account = Account {
        id: run.id,
        engine: run.engine,
        ending: word,
        exit: exit.code(),
        error: &error,
        tally: &watch.tally,
        outcome,
        agent: watch.agent.as_ref(),
        features: &watch.features,
        spent: &watch.spent,
        began: run.began.as_secs(),
        wall: run.wall,
        cleared: &cleared,
        report: report.clone(),
        kept: run.kept,
    };
    let receipt = run.kept.dir.write_new(RECEIPT, &receipt::receipt(spec, &account), 0o600);
    let on = |path: &Path| path.display().to_string();
    let written = receipt.is_ok();
    let mut unwritten = receipt.err().map(|e| Error::fault("write", on(&run.kept.path.join(RECEIPT)), e));
    if let Some(to) = &spec.stats_file
        && let Err(e) = report::write(to, &receipt::stats(spec, &account))
    {
        unwritten = Some(Error::wrong("write", on(to), e));
    }
    Settled { exit, error, report, notes, receipt: written, unwritten }
}

/// Tells how it went: the summary on standard error, the answer on standard output where there is no report.
fn summary(
    mut settled: Settled,
    watch: &mut Watch<'_>,
    outcome: &Outcome,
    run: &Ended<'_>,
) -> Result<Exit, Error> {
    let tally = watch.tally.words();
    let show = &mut *watch.show;
    for line in settled.notes.iter().chain((!settled.error.is_empty()).then_some(&settled.error)) {
        show.note(line);
    }
    show.note(&match run.mode {
        Mode::Open => format!("open: no call was counted or recorded, {:.1} s", run.wall.as_secs_f64()),
        Mode::Sealed | Mode::KeySafe => format!("{tally}, {:.1} s", run.wall.as_secs_f64()),
    });
    match &settled.report {
        Some(path) => show.note(&format!("report -> {path}")),
        None if !outcome.text.trim().is_empty() => {
            if let Err(e) = show.answer(&outcome.text) {
                let lost = Error::new(Exit::Failed, "write the answer", "to standard output", e);
                settled.unwritten =
                    settled.unwritten.or(Some(lost.remedy("the call log has what was asked")));
            }
        }
        None => {}
    }
    if settled.receipt {
        show.note(&format!("receipt -> {}", run.kept.path.join(RECEIPT).display()));
    }
    // A worse ending than what could not be written keeps its own code.
    match settled.unwritten {
        Some(e) if settled.exit == Exit::Ok => Err(e),
        Some(e) => {
            watch.show.note(&e.to_string());
            Ok(settled.exit)
        }
        None => Ok(settled.exit),
    }
}

/// A cap was reached: that is how the run ended, whether the relay ended it or the agent gave up first.
fn capped(watch: &Watch<'_>, ending: &Ending) -> Option<(Exit, &'static str, String)> {
    let by_relay = matches!(ending, Ending::Relay(stop) if stop.exit == Exit::Cap.code());
    let reached = watch.spent.reached.as_ref().filter(|_| by_relay || matches!(ending, Ending::Turn))?;
    Some((Exit::Cap, "cap", format!("a cap ended the run: {}", text::short(reached, 500))))
}

/// Exit code, word for the receipt, and one line where it went wrong.
fn verdict(
    spec: &Spec,
    ending: &Ending,
    outcome: &Outcome,
    code: Option<i32>,
) -> (Exit, &'static str, String) {
    let shown = |words: &str| text::short(words.trim(), 500);
    match ending {
        Ending::Turn if outcome.finished && outcome.ok => (Exit::Ok, "finished", String::new()),
        Ending::Turn if outcome.finished && outcome.max_turns => {
            (Exit::Cap, "cap", format!("the agent stopped at its turn limit: {}", shown(&outcome.error)))
        }
        Ending::Turn if outcome.unstarted => {
            // Program and image, both: one of the two is not what the caller thinks.
            let place = spec.docker.as_ref().map_or(String::new(), |d| format!(" in the image {}", d.image));
            (Exit::Engine, "engine", format!("the agent could not start{place}: {}", shown(&outcome.error)))
        }
        Ending::Turn if outcome.finished => {
            let words = if outcome.error.trim().is_empty() { &outcome.text } else { &outcome.error };
            (Exit::Failed, "failed", format!("the agent reported an error: {}", shown(words)))
        }
        Ending::Turn => {
            let how = code.map_or("by a signal".to_string(), |c| format!("with code {c}"));
            (Exit::Failed, "failed", format!("the agent exited without a final result ({how})"))
        }
        Ending::Relay(stop) => {
            (exit_of(stop), "policy", format!("the relay ended the run: {}", shown(&stop.why)))
        }
        Ending::Timeout => (Exit::Timeout, "timeout", "the agent exceeded --timeout".into()),
        Ending::Signal(number) => {
            (Exit::Signal(*number), "signal", format!("interrupted by signal {number}"))
        }
        Ending::Engine(words) => {
            let engine = spec.engine;
            let remedy = match engine {
                Engine::Bwrap => bwrap::remedy(words),
                Engine::Docker => docker::remedy(words),
            };
            let tail = if remedy.is_empty() { String::new() } else { format!("; {remedy}") };
            (
                Exit::Engine,
                "engine",
                format!("{} could not start the box: {}{tail}", engine.name(), shown(words)),
            )
        }
        Ending::Box(why) => (Exit::Failed, "lost", format!("the box no longer behaves: {}", shown(why))),
        Ending::Lost(why) => (Exit::Fault, "lost", shown(why)),
    }
}

/// The relay's own word for how the command ends.
fn exit_of(stop: &Stop) -> Exit {
    [Exit::Failed, Exit::Wrong, Exit::Policy, Exit::Engine, Exit::Cap]
        .into_iter()
        .find(|e| e.code() == stop.exit)
        .unwrap_or(Exit::Fault)
}
