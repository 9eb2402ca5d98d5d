//! Each way in which a proxy can answer, byte by byte: what Go's `golang.org/x/net/internal/socks` sends and makes of it.

use tokio::io::duplex;

use super::*;

/// What the client says and how it ends with a proxy that gives these answers, one to each message.
async fn talk(login: Option<(&str, &str)>, host: &str, answers: &[&[u8]]) -> (Vec<Vec<u8>>, Result<(), String>) {
    let credentials = login.map(|(user, password)| Credentials { user: user.into(), password: password.into() });
    let (mut ours, mut theirs) = duplex(4096);
    let proxy = async {
        let mut said = Vec::new();
        for answer in answers {
            let mut message = vec![0; 1024];
            let length = theirs.read(&mut message).await.unwrap();
            message.truncate(length);
            said.push(message);
            if length == 0 || theirs.write_all(answer).await.is_err() {
                break;
            }
        }
        drop(theirs);
        said
    };
    let client = async {
        let ended = connect(&mut ours, credentials.as_ref(), host, 6443).await;
        drop(ours);
        ended.map_err(|error| error.to_string())
    };
    tokio::join!(proxy, client)
}

const CONNECTED: &[u8] = &[5, 0, 0, 1, 10, 0, 0, 9, 0, 80];
const TO_API: &[u8] = b"\x05\x01\x00\x03\x03api\x19\x2b";

#[tokio::test]
async fn both_methods_are_offered_where_there_is_a_user_and_the_proxy_chooses() {
    let both: &[u8] = &[5, 2, 0, 2];
    for (login, answers, expected) in [
        (None, &[&[5, 0], CONNECTED][..], &[&[5, 1, 0], TO_API][..]),
        (Some(("me", "secret")), &[&[5, 0], CONNECTED], &[both, TO_API]),
        (Some(("me", "secret")), &[&[5, 2], &[1, 0], CONNECTED], &[both, b"\x01\x02me\x06secret", TO_API]),
        // The protocol has room for an empty password, and a user is read once the proxy wants it.
        (Some(("me", "")), &[&[5, 2], &[1, 0], CONNECTED], &[both, b"\x01\x02me\x00", TO_API]),
        (Some(("", "")), &[&[5, 0], CONNECTED], &[both, TO_API]),
    ] {
        let (said, ended) = talk(login, "api", answers).await;
        assert_eq!(ended, Ok(()), "{login:?} {answers:?}");
        assert_eq!(said, expected, "{login:?} {answers:?}");
    }
}

#[tokio::test]
async fn each_form_of_an_address_is_sent_and_received() {
    let long = "a".repeat(255);
    for (host, expected) in [
        ("10.0.0.1", b"\x05\x01\x00\x01\x0a\x00\x00\x01\x19\x2b".to_vec()),
        ("::1", [&[5, 1, 0, 4][..], &[0; 15], &[1, 0x19, 0x2b]].concat()),
        ("api", TO_API.to_vec()),
        (&*long, [&[5, 1, 0, 3, 255][..], long.as_bytes(), &[0x19, 0x2b]].concat()),
    ] {
        for from in [&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], b"\x05\x00\x00\x03\x01p\x00\x00", &{
            let mut from = [0; 22];
            (from[0], from[3]) = (5, 4);
            from
        }] {
            let (said, ended) = talk(None, host, &[&[5, 0], from]).await;
            assert_eq!((ended, &said[1]), (Ok(()), &expected), "{host} {from:?}");
        }
    }
    let (said, ended) = talk(None, &"a".repeat(256), &[&[5, 0]]).await;
    assert_eq!(ended, Err("SOCKS 5 has room for names of up to 255 bytes".to_owned()));
    assert_eq!(said, [[0; 0]]);
}

#[tokio::test]
async fn what_the_host_sends_first_is_not_taken_for_the_proxys() {
    let (mut ours, mut theirs) = duplex(64);
    theirs.write_all(&[&[5, 0], CONNECTED, b"host"].concat()).await.unwrap();
    connect(&mut ours, None, "api", 6443).await.unwrap();
    assert_eq!(&read::<4>(&mut ours).await.unwrap(), b"host");
}

#[tokio::test]
async fn a_refusal_says_what_the_proxy_wants_and_never_the_password() {
    let (long, me) = ("secret".repeat(50), Some(("me", "secret")));
    let room =
        "it wants its user and password, and SOCKS 5 has room for a user of 1 to 255 bytes and a password of up to 255";
    for (login, answers, expected) in [
        (
            None,
            &[&[5, 0xff][..]][..],
            "it accepts no client without a user and password: give its address both, as socks5://USER:PASSWORD@HOST:PORT",
        ),
        (me, &[&[5, 0xff]], "it accepts neither a user and password nor a client without them"),
        (None, &[&[5, 2]], "it chose the authentication method 2, which was not offered"),
        (me, &[&[5, 1]], "it chose the authentication method 1, which was not offered"),
        (me, &[&[5, 2], &[1, 1]], "it does not accept the user and password of its address"),
        (Some(("", "secret")), &[&[5, 2]], room),
        (Some(("me", &*long)), &[&[5, 2]], room),
        (Some((&*long, "")), &[&[5, 2]], room),
        (
            None,
            &[b"HTTP/1.1 400 Bad Request\r\n\r\n"],
            "it answered with version 72 of a protocol that is not SOCKS 5: check its port and scheme",
        ),
        (
            None,
            &[&[5, 0], &[4, 0, 0, 1]],
            "it answered with version 4 of a protocol that is not SOCKS 5: check its port and scheme",
        ),
        (None, &[&[5, 0], &[5, 2, 0, 1]], "it answered: connection not allowed by ruleset"),
        (None, &[&[5, 0], &[5, 5, 0, 1]], "it answered: connection refused"),
        (None, &[&[5, 0], &[5, 9, 0, 1]], "it answered: unknown code 9"),
        (me, &[&[]], "its connection ended before its answer"),
        (me, &[&[5, 2], &[]], "its connection ended before its answer"),
        (None, &[&[5, 0], &[5, 0, 0, 1, 10]], "its connection ended before its answer"),
    ] {
        let (_, ended) = talk(login, "api", answers).await;
        assert_eq!(ended, Err(expected.to_owned()), "{login:?} {answers:?}");
    }
}
