//! The path of a call: it is recorded, may hit a fault, is decided by the state, and its result is recorded.

use std::future::pending;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use tonic::{Code, Request, Response, Status};

use super::calls::{Call, Outcome, Violation};
use super::faults::{About, Action};
use super::lies::Answer as _;
use super::record;
use super::refusal::Refusal;
use super::rpc::Rpc;
use super::server::Command;
use super::service::Connection;
use super::storage::Storage;
use super::{Busy, Driver};

/// The time for an answer to leave the process before a crash.
const FLUSH: Duration = Duration::from_millis(20);

impl Driver {
    /// Answers one call. Dropping the future is the caller giving up, or the connection's end.
    pub(super) async fn answer<R: Rpc>(&self, request: Request<R>) -> Result<Response<R::Answer>, Status> {
        let (running, action) = self.begin(&request);
        let result = running.act(request.into_inner(), action).await;
        running.finish(match &result {
            Ok(_) => Outcome::Ok,
            Err(refusal) => Outcome::Refused(refusal.clone()),
        });
        Ok(Response::new(result?))
    }

    /// Notes the call and looks up what goes wrong with it.
    fn begin<R: Rpc>(&self, request: &Request<R>) -> (Running, Option<Action>) {
        let named = |id: Option<&str>| id.filter(|id| !id.is_empty()).map(str::to_owned);
        let header = |name| request.metadata().get(name).and_then(|value| value.to_str().ok());
        let body = request.get_ref();
        let (volume, name, node) = (named(body.volume()), named(body.name()), named(body.node()));
        let snapshot = named(body.snapshot());
        let subjects = body.subjects();
        let reads = body.reads();
        let started = self.age();
        self.change(|inner| {
            let about = About {
                volume: volume.as_deref().or(name.as_deref()),
                node: node.as_deref(),
                snapshot: snapshot.as_deref(),
            };
            let action = inner.script.tear_down(R::METHOD, about);
            let call = Call {
                volume,
                name,
                node,
                snapshot,
                secrets: body.has_secrets(),
                traceparent: header("traceparent").map(str::to_owned),
                connection: request.extensions().get::<Connection>().map_or(0, |connection| connection.0),
                publish: body.publish(),
                create: body.create(),
                expand: body.expand(),
                modify: body.modify(),
                capacity: body.capacity(),
                cut: body.cut(),
                cut_group: body.cut_group(),
                members: body.members(),
                list: body.list(),
                fault: action.clone(),
                deadline: header("grpc-timeout").and_then(timeout).map(|timeout| started.saturating_add(timeout)),
                ..Call::running(0, R::METHOD, started)
            };
            let id = inner.log.begin(call, &subjects, reads.clone());
            if let Some(call) = inner.log.call(id) {
                let name = &inner.profile.name;
                self.note(inner, id, |now| record::begin(call, name, &subjects, reads.as_deref(), body, now));
            }
            self.show(inner, id);
            (Running { driver: self.clone(), id, subjects }, action)
        })
    }

    /// Lets the state decide, and notes that it did.
    fn apply<R: Rpc>(&self, id: u64, body: &R) -> Result<R::Answer, Refusal> {
        let (wall, age) = (self.0.clock.wall(), self.age());
        self.change(|inner| {
            let (state, profile) = (&mut inner.state, &inner.profile);
            let result = match Storage::of(profile) {
                None => body.serve(state, profile, wall),
                Some(storage) => storage.serve(body, state, profile, wall),
            };
            if let Ok(answer) = &result {
                let ids = answer.made();
                if !ids.is_empty() {
                    self.note(inner, id, |_| record::made(&ids));
                }
                inner.log.applied(id, age);
                self.show(inner, id);
            }
            result
        })
    }

    /// Kills the server, if there is one.
    fn crash(&self, down: Duration) {
        if let Some(server) = &self.lock().server {
            // A server that is gone needs no killing.
            let _ = server.send(Command::Crash(down));
        }
    }

    /// The server died or restarts: what it thought to be working on is forgotten.
    pub(super) fn restarted(&self) {
        self.change(|inner| {
            inner.restarts += 1;
            inner.busy.retain(|_, busy| !busy.wedged);
        });
    }

    /// A new process serves the driver: it knows of nothing that the one before was working on.
    pub(super) fn served_by(&self, server: mpsc::UnboundedSender<Command>) {
        self.change(|inner| {
            inner.server = Some(server);
            inner.busy.retain(|_, busy| !busy.wedged);
        });
    }

    pub(super) fn panicked(&self, message: String) {
        self.change(|inner| inner.log.violate(Violation::Panic(message)));
    }

    /// Numbers a new connection.
    pub(super) fn connected(&self) -> Connection {
        self.change(|inner| {
            inner.connections += 1;
            Connection(inner.connections)
        })
    }
}

/// A call under way. Dropped without an answer, it was abandoned.
struct Running {
    driver: Driver,
    id: u64,
    subjects: Vec<String>,
}

impl Running {
    async fn act<R: Rpc>(&self, body: R, action: Option<Action>) -> Result<R::Answer, Refusal> {
        let driver = &self.driver;
        match action {
            None => {
                let _hold = self.hold()?;
                driver.apply(self.id, &body)
            }
            Some(Action::Fail { code, message }) => Err(Refusal::new(code, message)),
            Some(Action::Hang) => {
                let _hold = self.hold()?;
                pending().await
            }
            Some(Action::Wedge) => {
                let mut hold = self.hold()?;
                hold.wedge();
                pending().await
            }
            Some(Action::Delay(after)) => {
                let _hold = self.hold()?;
                sleep(after).await;
                driver.apply(self.id, &body)
            }
            Some(Action::Crowded { most, takes, code }) => {
                let _hold = self.hold()?;
                if driver.busy().len() > most {
                    return Err(Refusal::new(code, format!("more than {most} operations at once")));
                }
                sleep(takes).await;
                driver.apply(self.id, &body)
            }
            Some(Action::Late(after)) => self.act_late(body, sleep(after)).await,
            Some(Action::Hold) => {
                let mut releases = driver.0.releases.subscribe();
                self.act_late(body, async move {
                    // The sender lives as long as the driver does.
                    let _ = releases.changed().await;
                })
                .await
            }
            Some(Action::DoneButFail { code, message }) => {
                let _hold = self.hold()?;
                driver.apply(self.id, &body)?;
                Err(Refusal::new(code, message))
            }
            Some(Action::DoneButHang) => {
                let _hold = self.hold()?;
                driver.apply(self.id, &body)?;
                pending().await
            }
            Some(Action::Crash { down }) => {
                driver.crash(down);
                pending().await
            }
            Some(Action::DoneButCrash { down }) => {
                let _hold = self.hold()?;
                let done = driver.apply(self.id, &body);
                driver.crash(down);
                done?;
                pending().await
            }
            Some(Action::AnswerThenCrash { down }) => {
                let _hold = self.hold()?;
                let driver = driver.clone();
                driver.clone().0.backend.spawn(format!("crash.{}", self.id), async move {
                    sleep(FLUSH).await;
                    driver.crash(down);
                });
                self.driver.apply(self.id, &body)
            }
            Some(Action::Lie(lie)) => {
                let _hold = self.hold()?;
                let mut answer = driver.apply(self.id, &body)?;
                answer.distort(&lie);
                Ok(answer)
            }
        }
    }

    /// Serves when `ready`, in a task of the backend: a caller that gives up does not stop it.
    async fn act_late<R: Rpc>(
        &self,
        body: R,
        ready: impl Future<Output = ()> + Send + 'static,
    ) -> Result<R::Answer, Refusal> {
        let hold = self.hold()?;
        let (done, answer) = oneshot::channel();
        let (driver, id) = (self.driver.clone(), self.id);
        self.driver.0.backend.spawn(format!("late.{id}"), async move {
            ready.await;
            let result = driver.apply(id, &body);
            drop(hold);
            // The caller may have given up long ago.
            let _ = done.send(result);
        });
        answer.await.unwrap_or_else(|_| Err(Refusal::new(Code::Internal, "the operation was lost")))
    }

    /// Claims what the call changes; refuses while another operation still works on it.
    fn hold(&self) -> Result<Hold, Refusal> {
        let mut hold = Hold { driver: self.driver.clone(), call: self.id, claimed: Vec::new() };
        self.driver.change(|inner| {
            let pending = self.subjects.iter().find(|subject| inner.busy.contains_key(*subject));
            if let Some(subject) = pending.filter(|_| inner.profile.abort_while_pending) {
                return Err(Refusal::new(Code::Aborted, format!("an operation on {subject:?} is pending")));
            }
            for subject in self.subjects.iter().filter(|_| pending.is_none()) {
                inner.busy.insert(subject.clone(), Busy { call: self.id, wedged: false });
                hold.claimed.push(subject.clone());
            }
            Ok(())
        })?;
        Ok(hold)
    }

    fn finish(&self, outcome: Outcome) {
        let age = self.driver.age();
        let code = outcome.label();
        self.driver.change(|inner| {
            if inner.log.end(self.id, outcome, age) {
                self.driver.note(inner, self.id, |_| record::end(code));
                self.driver.show(inner, self.id);
            }
        });
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.finish(Outcome::Abandoned);
    }
}

/// The claim of one call on what it changes.
struct Hold {
    driver: Driver,
    call: u64,
    claimed: Vec<String>,
}

impl Hold {
    /// Leaves the claim behind until a restart.
    fn wedge(&mut self) {
        let claimed = std::mem::take(&mut self.claimed);
        self.driver.change(|inner| {
            for subject in &claimed {
                if let Some(busy) = inner.busy.get_mut(subject) {
                    busy.wedged = true;
                }
            }
        });
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let claimed = std::mem::take(&mut self.claimed);
        if claimed.is_empty() {
            return;
        }
        self.driver.change(|inner| {
            for subject in &claimed {
                if inner.busy.get(subject).is_some_and(|busy| busy.call == self.call) {
                    inner.busy.remove(subject);
                }
            }
        });
    }
}

/// Reads a `grpc-timeout` header: a number and its unit.
fn timeout(header: &str) -> Option<Duration> {
    let (number, unit) = header.split_at_checked(header.len().checked_sub(1)?)?;
    let number: u64 = number.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number.saturating_mul(3600)),
        "M" => Duration::from_secs(number.saturating_mul(60)),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_in_every_unit() {
        let cases = [("15S", 15_000), ("1500m", 1500), ("2M", 120_000), ("1H", 3_600_000), ("5000u", 5)];
        for (header, millis) in cases {
            assert_eq!(timeout(header), Some(Duration::from_millis(millis)), "{header}");
        }
        assert_eq!((timeout("15"), timeout(""), timeout("xS")), (None, None, None));
    }
}
