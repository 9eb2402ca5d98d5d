//! The driver's own answer to a call: the `grpc-status` that it sent, if any.
//!
//! tonic returns the driver's errors and its own errors (an undecodable message, a message over the limit, no message,
//! no status) in the same form: a status with a code, sometimes without a source. We must distinguish them: after the
//! driver's `Internal` no volume exists, but after an unreadable response a volume may exist.
//!
//! tonic also drops a message that is not UTF-8 (a text in GBK, or one that was cut inside a letter), and its code with it. We
//! make such a message readable before tonic sees it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{HeaderMap, HeaderValue};
use hyper::body::{Frame, SizeHint};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode, utf8_percent_encode};
use tonic::Code;
use tonic::body::Body;
use tonic::client::GrpcService;

const MESSAGE: &str = "grpc-message";
/// What must not stand in a header as it is. Letters beyond ASCII are encoded in any case.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%');

/// The header of a message that is not UTF-8, with U+FFFD for each part that cannot be read. `None`: it can be read as it is.
fn repaired(message: &[u8]) -> Option<HeaderValue> {
    let text = percent_decode(message);
    if text.clone().decode_utf8().is_ok() {
        return None;
    }
    HeaderValue::try_from(utf8_percent_encode(&text.decode_utf8_lossy(), ENCODED).to_string()).ok()
}

/// No code is less than 0.
const NOTHING_YET: i32 = -1;

/// The status that the driver sent for one call. Clones are of the same call.
#[derive(Debug, Clone)]
pub(super) struct GrpcStatus(Arc<AtomicI32>);

impl Default for GrpcStatus {
    fn default() -> Self {
        Self(Arc::new(AtomicI32::new(NOTHING_YET)))
    }
}

impl GrpcStatus {
    /// The code that the driver has sent so far.
    pub(super) fn code(&self) -> Option<Code> {
        let code = self.0.load(Ordering::Acquire);
        (code != NOTHING_YET).then(|| Code::from_i32(code))
    }

    fn note(&self, headers: &mut HeaderMap) {
        if let Some(status) = headers.get("grpc-status") {
            self.0.store(Code::from_bytes(status.as_bytes()) as i32, Ordering::Release);
        }
        if let Some(readable) = headers.get(MESSAGE).and_then(|message| repaired(message.as_bytes())) {
            headers.insert(MESSAGE, readable);
        }
        // They are not used, and tonic panics if they are not base64.
        headers.remove("grpc-status-details-bin");
    }
}

/// A channel for one call, which records the driver's status.
#[derive(Debug)]
pub(super) struct StatusTap<S> {
    inner: S,
    status: GrpcStatus,
}

impl<S> StatusTap<S> {
    pub(super) fn new(inner: S, status: GrpcStatus) -> Self {
        Self { inner, status }
    }
}

impl<S> tonic::codegen::Service<http::Request<Body>> for StatusTap<S>
where
    S: GrpcService<Body, ResponseBody = Body>,
    S::Future: Send + 'static,
    S::Error: 'static,
{
    type Response = http::Response<TappedBody>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let status = self.status.clone();
        let answer = self.inner.call(request);
        async move {
            let mut answer = answer.await?;
            status.note(answer.headers_mut());
            Ok(answer.map(|body| TappedBody { body, status }))
        }
        .boxed()
    }
}

/// A response body that records the status in its trailers.
pub(super) struct TappedBody {
    body: Body,
    status: GrpcStatus,
}

impl hyper::body::Body for TappedBody {
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
            self.status.note(trailers);
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
