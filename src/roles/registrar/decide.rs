//! When the driver is announced to the kubelet and withdrawn, and how its registration stands. Pure.
//!
//! The rules are the rows of node-and-health spec B4. What the kubelet does is in node-and-health spec B3.

use std::time::Duration;

use tokio::time::Instant;

/// The kubelet looks at its directory each second and then asks at once.
const ASKS_WITHIN: Duration = Duration::from_secs(30);
/// The kubelet's limits: 10 s to connect, 1 s for `GetInfo`, 2 m for the driver's `NodeGetInfo`.
const ANSWERS_WITHIN: Duration = Duration::from_secs(130);
/// The first pause after a refusal in which the kubelet may try again by itself; it doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest such pause, as long as the kubelet's own longest back-off.
const LONGEST_PAUSE: Duration = Duration::from_secs(120);
/// The pause after a socket could not be put into the directory.
const FAILED_PAUSE: Duration = Duration::from_secs(10);

/// What is at the path of the registration socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// Nothing.
    Nothing,
    /// The socket that we have announced last.
    Ours,
    /// A socket of another process, or of a process that has ended.
    AnotherSocket,
    /// Something else, which is never removed.
    NotASocket,
    /// The directory is missing. It is never made: that would hide a wrong mount.
    NoDirectory,
    /// It cannot be read.
    Unreadable(String),
}

/// The driver, as it was seen last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DriverSeen {
    /// Its name; `None`: it has never answered.
    pub(super) name: Option<String>,
    /// Why it does not answer; `None`: it does.
    pub(super) silence: Option<String>,
    /// Since when it does, or does not.
    pub(super) since: Instant,
}

impl DriverSeen {
    /// The driver's name, if it answers.
    fn answering(&self) -> Option<&str> {
        self.name.as_deref().filter(|_| self.silence.is_none())
    }
}

/// What the kubelet has said about the latest announcement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Dialogue {
    /// When it asked last.
    pub(super) asked: Option<Instant>,
    /// Its last verdict, and when it came. `Err`: why it does not register the driver.
    pub(super) verdict: Option<(Instant, Result<(), String>)>,
    /// Whether it has ever registered the driver.
    pub(super) was_registered: bool,
    /// Announcements after a refusal, since the last success.
    pub(super) repeated: u32,
}

impl Dialogue {
    /// None yet.
    pub(super) const fn new() -> Self {
        Self { asked: None, verdict: None, was_registered: false, repeated: 0 }
    }

    /// The kubelet has asked which driver it is.
    pub(super) fn asks(&mut self, now: Instant) {
        self.asked = Some(now);
    }

    /// The kubelet has said how it went.
    pub(super) fn says(&mut self, now: Instant, verdict: Result<(), String>) {
        if verdict.is_ok() {
            (self.was_registered, self.repeated) = (true, 0);
        }
        self.verdict = Some((now, verdict));
    }

    /// A new socket was announced. The verdict on the old one stands until the next, but for a refusal's pause.
    pub(super) fn announced(&mut self, reason: Reason) {
        self.asked = None;
        match reason {
            Reason::Refused => self.repeated += 1,
            Reason::Start
            | Reason::Vanished
            | Reason::Renamed
            | Reason::Returned
            | Reason::Reconfigured
            | Reason::Lost => self.verdict = None,
        }
    }

    /// The driver was withdrawn.
    pub(super) fn withdrawn(&mut self) {
        (self.asked, self.verdict) = (None, None);
    }
}

/// Why the driver is announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// For the first time.
    Start,
    /// The file has gone.
    Vanished,
    /// The kubelet has refused it and does not try again.
    Refused,
    /// The driver has another name.
    Renamed,
    /// The driver was withdrawn and answers again.
    Returned,
    /// The configuration has another directory, or another path of the driver's socket.
    Reconfigured,
    /// The node's `CSINode` does not have the driver any more.
    Lost,
}

impl Reason {
    /// For the log and the metric.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Vanished => "vanished",
            Self::Refused => "refused",
            Self::Renamed => "renamed",
            Self::Returned => "returned",
            Self::Reconfigured => "reconfigured",
            Self::Lost => "lost",
        }
    }
}

/// A socket that was announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Announced {
    /// The driver's name.
    pub(super) driver: String,
    /// When.
    pub(super) at: Instant,
}

/// What the configuration says otherwise since the announcement. All other keys need no new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outdated {
    /// The driver's path on the host: the kubelet asks a new socket only.
    Endpoint,
    /// The directory.
    Directory,
}

/// The latest looks at the node's `CSINode`, if the driver was not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Missing {
    /// The look before the latest, if the driver was not there either.
    before: Option<Instant>,
    latest: Instant,
}

impl Missing {
    /// After one more look without the driver.
    pub(super) fn again(last: Option<Self>, now: Instant) -> Self {
        Self { before: last.map(|last| last.latest), latest: now }
    }
}

/// All that a decision depends on.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) now: Instant,
    pub(super) driver: &'a DriverSeen,
    pub(super) place: &'a Place,
    pub(super) announced: Option<&'a Announced>,
    /// Why the announcement is not what the configuration says; `None`: it is.
    pub(super) outdated: Option<Outdated>,
    pub(super) dialogue: &'a Dialogue,
    /// `None`: the node's `CSINode` has the driver, or nobody looks.
    pub(super) missing: Option<Missing>,
    /// When an announcement failed last, if none has succeeded since, and why.
    pub(super) failed: Option<&'a (Instant, String)>,
    /// Zero: never.
    pub(super) withdraw_after: Duration,
    /// Why the next announcement will be made, if nothing is announced now.
    pub(super) next: Reason,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing now.
    Wait,
    /// Put a new socket into the directory.
    Announce(Reason),
    /// Take the socket out of the directory, if it is still ours. The reason is that of the next announcement.
    Withdraw(Reason),
}

/// What to do now.
pub(super) fn next_step(view: &View<'_>) -> Step {
    let is_free = matches!(view.place, Place::Nothing | Place::Ours | Place::AnotherSocket);
    let is_paused = view.failed.is_some_and(|(at, _)| view.now.saturating_duration_since(*at) < FAILED_PAUSE);
    // A kubelet that calls a dead driver loses up to two minutes of back-off (row 1).
    let answering = view.driver.answering();
    let may_announce = is_free && !is_paused && answering.is_some();
    let Some(announced) = view.announced else {
        return if may_announce { Step::Announce(view.next) } else { Step::Wait };
    };
    if answering.is_some_and(|name| name != announced.driver) {
        return Step::Withdraw(Reason::Renamed);
    }
    if view.outdated == Some(Outdated::Directory) {
        return Step::Withdraw(Reason::Reconfigured);
    }
    let silent_for = view.now.saturating_duration_since(view.driver.since);
    if answering.is_none() && !view.withdraw_after.is_zero() && silent_for >= view.withdraw_after {
        return Step::Withdraw(Reason::Returned);
    }
    match view.place {
        Place::Nothing if may_announce => Step::Announce(Reason::Vanished),
        Place::Ours if may_announce && view.outdated == Some(Outdated::Endpoint) => {
            Step::Announce(Reason::Reconfigured)
        }
        Place::Ours if may_announce && must_repeat(view, announced) => Step::Announce(Reason::Refused),
        Place::Ours if may_announce && is_lost(view, announced) => Step::Announce(Reason::Lost),
        // Another instance has announced itself: not fought (row 6).
        _ => Step::Wait,
    }
}

/// Whether the kubelet has refused the driver and has had the time to ask again.
fn must_repeat(view: &View<'_>, announced: &Announced) -> bool {
    let Some((refused, Err(_))) = &view.dialogue.verdict else { return false };
    let since = (*refused).max(announced.at);
    let asked_again = view.dialogue.asked.is_some_and(|asked| asked > *refused);
    !asked_again && view.now.saturating_duration_since(since) >= pause(view.dialogue.repeated)
}

/// Whether the kubelet has registered the driver and lost it after that. One look is not enough: the kubelet may write at this moment.
/// The kubelet writes `CSINode` before it says that the driver is registered.
fn is_lost(view: &View<'_>, announced: &Announced) -> bool {
    let Some((registered, Ok(()))) = &view.dialogue.verdict else { return false };
    let first = view.missing.and_then(|missing| missing.before);
    first.is_some_and(|first| first > announced.at && first > *registered)
}

/// The pause after so many announcements that were refused.
fn pause(repeated: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(repeated)).min(LONGEST_PAUSE)
}

/// How the registration stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// The driver has not answered yet, or was withdrawn because it does not.
    WaitingForDriver(String),
    /// The directory is missing.
    NoDirectory,
    /// Something is in the way.
    NotASocket,
    /// The directory cannot be used.
    Failed(String),
    /// The kubelet has not had the time to ask.
    Announced,
    /// The kubelet should have asked.
    NotAsked,
    /// The kubelet has asked.
    Asked,
    /// The kubelet should have said how it went.
    NotAnswered,
    /// The kubelet has registered the driver.
    Registered,
    /// The kubelet has refused it.
    Refused(String),
    /// Another instance has announced the driver.
    Replaced,
}

/// How the registration stands now.
pub(super) fn state(view: &View<'_>) -> State {
    match view.place {
        Place::NoDirectory => return State::NoDirectory,
        Place::NotASocket => return State::NotASocket,
        Place::Unreadable(error) => return State::Failed(error.clone()),
        Place::Nothing | Place::Ours | Place::AnotherSocket => {}
    }
    if let Some((_, error)) = view.failed {
        return State::Failed(error.clone());
    }
    let Some(announced) = view.announced else {
        let silence = view.driver.silence.clone().unwrap_or_else(|| "it is being asked".to_owned());
        return State::WaitingForDriver(silence);
    };
    if *view.place == Place::AnotherSocket {
        return State::Replaced;
    }
    let age = |at: Instant| view.now.saturating_duration_since(at);
    match (view.dialogue.asked, &view.dialogue.verdict) {
        (Some(asked), verdict) if verdict.as_ref().is_none_or(|(at, _)| *at < asked) => {
            if age(asked) > ANSWERS_WITHIN {
                State::NotAnswered
            } else {
                State::Asked
            }
        }
        (_, Some((_, Ok(())))) => State::Registered,
        (_, Some((_, Err(error)))) => State::Refused(error.clone()),
        (_, None) => {
            if age(announced.at) > ASKS_WITHIN {
                State::NotAsked
            } else {
                State::Announced
            }
        }
    }
}

impl State {
    /// In words.
    pub(super) fn text(&self, path: &str, directory: &str) -> String {
        match self {
            Self::WaitingForDriver(reason) => format!("waiting for the driver: {reason}"),
            Self::NoDirectory => {
                format!("{directory} does not exist: is the kubelet's plugins_registry mounted there?")
            }
            Self::NotASocket => format!("{path} exists and is not a socket"),
            Self::Failed(error) => format!("cannot announce the driver in {directory}: {error}"),
            Self::Announced => "announced to the kubelet".to_owned(),
            Self::NotAsked => format!("kubelet has not asked: is {directory} its plugins_registry?"),
            Self::Asked => "kubelet has asked".to_owned(),
            Self::NotAnswered => "kubelet asked, has not answered yet".to_owned(),
            Self::Registered => "registered".to_owned(),
            Self::Refused(error) => format!("kubelet refused: {error}"),
            Self::Replaced => "replaced by another instance".to_owned(),
        }
    }

    /// Whether the driver is announced, and the kubelet has said nothing against it.
    fn is_announced(&self) -> bool {
        match self {
            Self::Registered | Self::Announced | Self::Asked | Self::Replaced => true,
            Self::WaitingForDriver(_)
            | Self::NoDirectory
            | Self::NotASocket
            | Self::Failed(_)
            | Self::NotAsked
            | Self::NotAnswered
            | Self::Refused(_) => false,
        }
    }

    /// Whether the kubelet has the driver. While it has another socket to ask, or asks again, its last word holds.
    pub(super) fn is_registered(&self, dialogue: &Dialogue) -> bool {
        matches!(self, Self::Registered) || self.is_announced() && matches!(dialogue.verdict, Some((_, Ok(()))))
    }

    /// Whether the role is ready in this state. Until the kubelet has registered the driver once, only success is.
    pub(super) fn is_ready(&self, was_registered: bool) -> bool {
        matches!(self, Self::Registered | Self::Replaced) || self.is_announced() && was_registered
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
