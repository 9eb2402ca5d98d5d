//! The `:authority` of the kubelet's requests.
//!
//! The kubelet dials a registration socket by its path and says nothing else of whom it calls, so gRPC names the path:
//! `%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2F…` (kubernetes/kubernetes#109081). That is no authority, and `h2` ends such a stream
//! with `PROTOCOL_ERROR` (hyperium/h2#487): no driver would ever be registered. So the name is replaced before `h2` reads it.
//!
//! The code splits a block of headers into its representations (RFC 7541, 6), and decodes none of them. The new value is one letter,
//! and so no longer than any that it replaces. `h2` keeps a table of the connection's headers: that has at least the entries of the
//! kubelet's own table, in the same places (RFC 7541, 4.4).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What a client sends first (RFC 9113, 3.4), in bytes.
const PREFACE: usize = 24;
/// The header of a frame (RFC 9113, 4.1), in bytes.
const FRAME: usize = 9;
/// The longest frame that `h2` takes, as it announces no other (RFC 9113, 4.2), in bytes.
const LONGEST: usize = 1 << 14;
/// The type of a frame of headers, and its flags (RFC 9113, 6.2).
const HEADERS: u8 = 1;
const END_HEADERS: u8 = 0x04;
const PADDED: u8 = 0x08;
const PRIORITY: u8 = 0x20;
/// The place of `:authority` in the static table (RFC 7541, appendix A).
const AUTHORITY: usize = 1;
/// The new value: its length, and itself.
const NEW: &[u8] = b"\x01k";

/// A client's connection, read with another `:authority` in its requests.
#[derive(Debug)]
pub(super) struct Renamed<S> {
    stream: S,
    frames: Frames,
    /// What is to be read, and how much of it has been.
    ready: Vec<u8>,
    taken: usize,
}

impl<S> Renamed<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, frames: Frames::new(), ready: Vec::new(), taken: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Renamed<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.taken == this.ready.len() {
            let mut bytes = [0; 4096];
            let mut read = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut this.stream).poll_read(cx, &mut read))?;
            this.ready.clear();
            this.taken = 0;
            if read.filled().is_empty() {
                // What was begun has no end, and `h2` says so.
                this.ready.append(&mut this.frames.waiting);
                if this.ready.is_empty() {
                    return Poll::Ready(Ok(()));
                }
            } else {
                this.frames.take(read.filled(), &mut this.ready);
            }
        }
        let rest = &this.ready[this.taken..];
        let count = rest.len().min(into.remaining());
        into.put_slice(&rest[..count]);
        this.taken += count;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Renamed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The frames of a client, as they come in.
#[derive(Debug)]
struct Frames {
    /// The beginning of a frame whose rest is not there yet.
    waiting: Vec<u8>,
    /// How many of the next bytes go through as they are.
    through: usize,
}

impl Frames {
    fn new() -> Self {
        Self { waiting: Vec::new(), through: PREFACE }
    }

    /// Takes what came, and appends what goes on.
    fn take(&mut self, came: &[u8], out: &mut Vec<u8>) {
        self.waiting.extend_from_slice(came);
        let mut at = 0;
        loop {
            let rest = &self.waiting[at..];
            let through = self.through.min(rest.len());
            out.extend_from_slice(&rest[..through]);
            self.through -= through;
            at += through;
            let rest = &rest[through..];
            let Some((length, kind)) = frame(rest) else { break };
            if kind != HEADERS || length > LONGEST {
                self.through = FRAME + length;
                continue;
            }
            let Some(whole) = rest.get(..FRAME + length) else { break };
            match with_new_authority(whole) {
                Some(renamed) => out.extend_from_slice(&renamed),
                None => out.extend_from_slice(whole),
            }
            at += whole.len();
        }
        self.waiting.drain(..at);
    }
}

/// The length of a frame's payload and its type.
fn frame(bytes: &[u8]) -> Option<(usize, u8)> {
    let head = bytes.get(..FRAME)?;
    Some((usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]), head[3]))
}

/// A whole frame of headers with the new authority. `None`: it stays as it is. So does a block that goes on in another frame, as
/// one of more than 16 kB would.
fn with_new_authority(whole: &[u8]) -> Option<Vec<u8>> {
    let (head, payload) = whole.split_at_checked(FRAME)?;
    let flags = head[4];
    if flags & END_HEADERS == 0 {
        return None;
    }
    let padding = if flags & PADDED == 0 { 0 } else { usize::from(*payload.first()?) };
    let before = usize::from(flags & PADDED != 0) + if flags & PRIORITY == 0 { 0 } else { 5 };
    let block = payload.get(before..payload.len().checked_sub(padding)?)?;
    let renamed = renamed(block)?;
    let length = payload.len() - block.len() + renamed.len();
    let [.., high, middle, low] = u32::try_from(length).ok()?.to_be_bytes();
    let mut frame = vec![high, middle, low];
    frame.extend_from_slice(&head[3..]);
    frame.extend_from_slice(&payload[..before]);
    frame.extend_from_slice(&renamed);
    frame.extend_from_slice(&payload[before + block.len()..]);
    Some(frame)
}

/// A block of headers with the new authority in the place of each whose name is the static table's, as gRPC for Go writes it. `None`:
/// the block is broken.
fn renamed(block: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(block.len());
    let mut rest = block;
    while let [first, ..] = rest {
        let representation = rest;
        // How many bits of the first byte belong to its number, and whether a name and a value follow (RFC 7541, 6.1 to 6.3).
        let (bits, is_literal) = match first {
            0x80.. => (7, false),
            0x40..0x80 => (6, true),
            0x20..0x40 => (5, false),
            0..0x20 => (4, true),
        };
        let (index, after) = integer(rest, bits)?;
        rest = after;
        if is_literal && index == 0 {
            (_, rest) = string(rest)?;
        }
        let name = &representation[..representation.len() - rest.len()];
        out.extend_from_slice(name);
        if is_literal {
            let (value, after) = string(rest)?;
            let is_renamed = index == AUTHORITY && value.len() > 1;
            out.extend_from_slice(if is_renamed { NEW } else { value });
            rest = after;
        }
    }
    Some(out)
}

/// The number in the last bits of the first byte and in those that belong to it (RFC 7541, 5.1), and what follows.
fn integer(bytes: &[u8], bits: u32) -> Option<(usize, &[u8])> {
    let (first, mut rest) = bytes.split_first()?;
    let most = (1_usize << bits) - 1;
    let mut number = usize::from(*first) & most;
    if number < most {
        return Some((number, rest));
    }
    // More than a frame's length is an error, whatever it is: four bytes hold 28 bits.
    for shift in [0, 7, 14, 21] {
        let (byte, after) = rest.split_first()?;
        rest = after;
        number += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((number, rest));
        }
    }
    None
}

/// A text with its length (RFC 7541, 5.2), in Huffman's code or not, and what follows.
fn string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, text) = integer(bytes, 7)?;
    let head = bytes.len() - text.len();
    bytes.split_at_checked(head.checked_add(length)?)
}

#[cfg(test)]
#[path = "authority_tests.rs"]
mod tests;
