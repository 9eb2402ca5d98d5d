//! One direction of a connection in the simulated network, and the two ends that a connection has.
//!
//! Own pipes instead of `tokio::io::duplex`: bytes arrive after a latency, a stalled link holds them back without losing
//! them, and a reset is an error and not an end. Neither needs a task: a reader that is early sleeps until its bytes are due.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// The bytes that a direction holds before its writer must wait, like a socket's buffers.
const CAPACITY: usize = 64 * 1024;

/// One direction.
#[derive(Debug)]
pub(super) struct Pipe(Mutex<State>);

#[derive(Debug)]
struct State {
    segments: VecDeque<Segment>,
    held: usize,
    latency: Duration,
    /// Nothing passes, but nothing is lost.
    stalled: bool,
    /// The writer's end, if it has ended.
    end: Option<(Instant, End)>,
    /// The reader is gone.
    deaf: bool,
    /// The reader's host crashed under it.
    torn: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

#[derive(Debug)]
struct Segment {
    due: Instant,
    bytes: Vec<u8>,
    read: usize,
}

/// How a writer ends its direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// After everything it wrote.
    Closed,
    /// At once; what is under way is lost.
    Reset,
}

/// The result of a read.
enum Found {
    Bytes,
    End(End),
    /// Nothing before this time.
    Due(Instant),
    Nothing,
}

impl Pipe {
    pub(super) fn new(latency: Duration, stalled: bool) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            segments: VecDeque::new(),
            held: 0,
            latency,
            stalled,
            end: None,
            deaf: false,
            torn: false,
            reader: None,
            writer: None,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Changes the link's quality; both ends look again.
    pub(super) fn set_link(&self, latency: Duration, stalled: bool) {
        let mut state = self.lock();
        (state.latency, state.stalled) = (latency, stalled);
        state.wake();
    }

    /// Ends the direction from the writer's side. A reset overtakes an orderly end.
    pub(super) fn end(&self, end: End) {
        let mut state = self.lock();
        if end == End::Reset {
            state.segments.clear();
            state.held = 0;
        }
        if state.end.is_none() || end == End::Reset {
            let due = state.due();
            state.end = Some((due, end));
        }
        state.wake();
    }

    /// Breaks the direction for both sides now, even over a stalled link.
    pub(super) fn break_now(&self, now: Instant) {
        let mut state = self.lock();
        state.segments.clear();
        state.held = 0;
        (state.stalled, state.end, state.deaf) = (false, Some((now, End::Reset)), true);
        state.wake();
    }

    /// The reader's host is gone: should anyone still hold that end, it reads a reset.
    pub(super) fn tear(&self) {
        self.lock().torn = true;
        self.deafen();
    }

    /// The reader reads no more.
    fn deafen(&self) {
        let mut state = self.lock();
        state.deaf = true;
        state.segments.clear();
        state.held = 0;
        state.wake();
    }

    /// Whether a reset has arrived at the reader.
    fn is_reset(&self) -> bool {
        let state = self.lock();
        let arrived = matches!(state.end, Some((due, End::Reset)) if due <= Instant::now());
        state.torn || (arrived && !state.stalled)
    }
}

impl State {
    fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }

    /// When what is written now arrives: never before what was written earlier.
    fn due(&self) -> Instant {
        let due = Instant::now() + self.latency;
        self.segments.back().map_or(due, |last| last.due.max(due))
    }

    fn find(&self, now: Instant) -> Found {
        let due = match (self.segments.front(), self.end) {
            _ if self.torn => return Found::End(End::Reset),
            _ if self.stalled => return Found::Nothing,
            (Some(segment), _) if segment.due <= now => return Found::Bytes,
            (None, Some((due, end))) if due <= now => return Found::End(end),
            (Some(segment), _) => segment.due,
            (None, Some((due, _))) => due,
            (None, None) => return Found::Nothing,
        };
        Found::Due(due)
    }

    fn read(&mut self, now: Instant, buf: &mut ReadBuf<'_>) {
        while buf.remaining() > 0 {
            let Some(segment) = self.segments.front_mut().filter(|segment| segment.due <= now) else { break };
            let rest = segment.bytes.get(segment.read..).unwrap_or_default();
            let take = rest.len().min(buf.remaining());
            buf.put_slice(rest.get(..take).unwrap_or_default());
            segment.read += take;
            self.held -= take;
            if segment.read == segment.bytes.len() {
                self.segments.pop_front();
            }
        }
        self.writer.take().into_iter().for_each(Waker::wake);
    }
}

/// One end of a connection. Dropping it closes both directions.
#[derive(Debug)]
pub(super) struct Stream {
    incoming: Arc<Pipe>,
    outgoing: Arc<Pipe>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Stream {
    pub(super) fn new(incoming: Arc<Pipe>, outgoing: Arc<Pipe>) -> Self {
        Self { incoming, outgoing, timer: None }
    }

    /// Sleeps until `due`; ready when that has come.
    fn poll_timer(&mut self, cx: &mut Context<'_>, due: Instant) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if timer.deadline() != due {
            timer.as_mut().reset(due);
        }
        ready!(timer.as_mut().poll(cx));
        self.timer = None;
        Poll::Ready(())
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let incoming = Arc::clone(&self.incoming);
            let due = {
                let (mut state, now) = (incoming.lock(), Instant::now());
                match state.find(now) {
                    Found::Bytes => {
                        state.read(now, buf);
                        return Poll::Ready(Ok(()));
                    }
                    Found::End(End::Closed) => return Poll::Ready(Ok(())),
                    Found::End(End::Reset) => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                    Found::Nothing => {
                        state.reader = Some(cx.waker().clone());
                        return Poll::Pending;
                    }
                    Found::Due(due) => {
                        state.reader = Some(cx.waker().clone());
                        due
                    }
                }
            };
            ready!(self.poll_timer(cx, due));
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.incoming.is_reset() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let mut state = self.outgoing.lock();
        // A peer that is gone is noticed only where its answer could pass.
        if state.end.is_some() || (state.deaf && !state.stalled) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let take = buf.len().min(CAPACITY.saturating_sub(state.held));
        if take == 0 && !buf.is_empty() {
            state.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let due = state.due();
        state.held += take;
        state.segments.push_back(Segment { due, bytes: buf.get(..take).unwrap_or_default().to_vec(), read: 0 });
        state.reader.take().into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(take))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.outgoing.end(End::Closed);
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.outgoing.end(End::Closed);
        self.incoming.deafen();
    }
}
