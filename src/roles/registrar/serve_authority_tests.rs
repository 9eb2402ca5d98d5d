//! A client that names the socket's path as the `:authority`, byte by byte as the kubelet's gRPC does.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::{DRIVER, Node};
use crate::roles::kit::local::until;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    [&[0, 0, u8::try_from(payload.len()).unwrap(), kind, flags, 0, 0, 0, stream], payload].concat()
}

/// `GetInfo` without parameters, after these headers.
fn call(stream: u8, headers: &[u8]) -> Vec<u8> {
    [frame(HEADERS, END_HEADERS, stream, headers), frame(DATA, END_STREAM, stream, &[0; 5])].concat()
}

/// The answer to a call.
async fn answer(socket: &mut UnixStream, stream: u32) -> Vec<u8> {
    loop {
        let mut head = [0; 9];
        socket.read_exact(&mut head).await.unwrap();
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        socket.read_exact(&mut payload).await.unwrap();
        let of = u32::from_be_bytes(head[5..].try_into().unwrap());
        assert!(of != stream || head[3] != RST_STREAM, "refused: error code {payload:?}");
        if of == stream && head[3] == DATA {
            return payload;
        }
    }
}

#[tokio::test]
async fn n22_a_kubelet_that_names_the_sockets_path_as_the_authority_is_answered() {
    let (node, _server) = Node::with_driver().await;
    let _serving = node.registrar();
    until("the socket is there", async || node.socket().exists()).await;
    let mut socket = UnixStream::connect(node.socket()).await.unwrap();
    let begin = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, &[])].concat();
    socket.write_all(&begin).await.unwrap();

    let authority = "%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fdemo.csi.example.com-reg.sock";
    let text = |head: &[u8], text: &str| [head, &[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let first = [
        // POST, http.
        vec![0x83, 0x86],
        text(&[0x44], "/pluginregistration.Registration/GetInfo"),
        text(&[0x41], authority),
        text(&[0x5f], "application/grpc"),
        [text(&[0x40], "te"), text(&[], "trailers")].concat(),
    ];
    socket.write_all(&call(1, &first.concat())).await.unwrap();
    let told = answer(&mut socket, 1).await;
    assert!(String::from_utf8_lossy(&told).contains(DRIVER), "{told:?}");

    // The next call names what the first has put into the table: path, authority, content type and `te`, the latest first.
    socket.write_all(&call(3, &[0x83, 0x86, 0xc1, 0xc0, 0xbf, 0xbe])).await.unwrap();
    assert_eq!(answer(&mut socket, 3).await, told);
}
