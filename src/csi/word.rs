//! What the driver itself has said of a call: the `grpc-status` that it sent, if it sent one.
//!
//! tonic tells the driver's refusals and its own troubles with the answer (bytes that are no message, a message beyond the
//! limit, none at all, no status) in one form: a status with a code, and some of its own without a cause. They must be told
//! apart: after the driver's `Internal` nothing exists, after an answer that could not be read a volume may.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::HeaderMap;
use hyper::body::{Frame, SizeHint};
use tonic::Code;
use tonic::body::Body;
use tonic::client::GrpcService;

/// No code is less than 0.
const NOTHING_YET: i32 = -1;

/// The status that the driver sent for one call. Clones are of the same call.
#[derive(Debug, Clone)]
pub(super) struct Word(Arc<AtomicI32>);

impl Default for Word {
    fn default() -> Self {
        Self(Arc::new(AtomicI32::new(NOTHING_YET)))
    }
}

impl Word {
    /// What it has said by now.
    pub(super) fn said(&self) -> Option<Code> {
        let code = self.0.load(Ordering::Acquire);
        (code != NOTHING_YET).then(|| Code::from_i32(code))
    }

    fn listen(&self, headers: &mut HeaderMap) {
        if let Some(status) = headers.get("grpc-status") {
            self.0.store(Code::from_bytes(status.as_bytes()) as i32, Ordering::Release);
        }
        // Nobody reads them, and tonic panics where they are no base64.
        headers.remove("grpc-status-details-bin");
    }
}

/// A channel for one call, which hears the driver's word.
#[derive(Debug)]
pub(super) struct Listening<S> {
    inner: S,
    word: Word,
}

impl<S> Listening<S> {
    pub(super) fn new(inner: S, word: Word) -> Self {
        Self { inner, word }
    }
}

impl<S> tonic::codegen::Service<http::Request<Body>> for Listening<S>
where
    S: GrpcService<Body, ResponseBody = Body>,
    S::Future: Send + 'static,
    S::Error: 'static,
{
    type Response = http::Response<Heard>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let word = self.word.clone();
        let answer = self.inner.call(request);
        async move {
            let mut answer = answer.await?;
            word.listen(answer.headers_mut());
            Ok(answer.map(|body| Heard { body, word }))
        }
        .boxed()
    }
}

/// An answer's body, whose trailers are heard as they pass.
pub(super) struct Heard {
    body: Body,
    word: Word,
}

impl hyper::body::Body for Heard {
    type Data = <Body as hyper::body::Body>::Data;
    type Error = <Body as hyper::body::Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let mut next = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &mut next
            && let Some(trailers) = frame.trailers_mut()
        {
            self.word.listen(trailers);
        }
        next
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
