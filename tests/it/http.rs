//! A plain GET.

use csi_control_plane::process::Dial;
use http_body_util::{BodyExt as _, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

/// The body of the server's answer, whatever its status.
pub(crate) async fn get(server: &Dial, path: &str) -> String {
    let io = TokioIo::new(server.dial().await.unwrap());
    let (mut sender, connection) = http1::handshake(io).await.unwrap();
    let asked = Request::get(path).header("host", "daemon").body(Empty::<Bytes>::new()).unwrap();
    let answer = async {
        let answer = sender.send_request(asked).await.unwrap();
        answer.into_body().collect().await.unwrap().to_bytes()
    };
    let mut answer = std::pin::pin!(answer);
    let body = tokio::select! {
        body = &mut answer => body,
        ended = connection => {
            ended.unwrap();
            answer.await
        }
    };
    String::from_utf8(body.to_vec()).unwrap()
}
