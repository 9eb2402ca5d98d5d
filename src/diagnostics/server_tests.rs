use super::*;
use std::pin::Pin;

use crate::diagnostics::report::tests::demo;
use crate::process::Clock;
use crate::telemetry::names;
use crate::testing::mem_listener;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

struct House {
    connect: mpsc::UnboundedSender<DuplexStream>,
    board: Board,
    meter: Meter,
    stop: CancellationToken,
    serving: Pin<Box<dyn Future<Output = ()> + Send>>,
}

fn house() -> House {
    let (connect, listener) = mem_listener();
    let (board, meter, stop) = (Board::new("0.1.0", Clock::system()), Meter::new(), CancellationToken::new());
    let serving = Box::pin(serve(listener, board.clone(), meter.clone(), stop.clone()));
    House { connect, board, meter, stop, serving }
}

impl House {
    fn connect(&self) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(256 * 1024);
        self.connect.send(theirs).unwrap();
        ours
    }

    /// One exchange while the server runs: the whole answer.
    async fn ask(&mut self, method: &str, path: &str) -> String {
        let mut stream = self.connect();
        let talk = async {
            let request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        tokio::select! {
            biased;
            answer = talk => answer,
            () = &mut self.serving => panic!("the server ended"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn probes_answer_as_kubernetes_components_do() {
    let mut house = house();
    for path in ["/livez", "/readyz", "/healthz/leader-election"] {
        let answer = house.ask("GET", path).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nok"), "{answer}");
    }
    let ready = house.board.readiness("driver", || Err("connecting".to_owned()));
    house.board.lease("attacher", || Err("renewed 36 s ago".to_owned())).forever();
    let answer = house.ask("GET", "/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
    assert!(answer.ends_with("\r\n\r\n[-]driver failed: connecting\nreadyz check failed\n"), "{answer}");
    assert!(house.ask("GET", "/livez?verbose").await.ends_with("\r\n\r\nlivez check passed\n"));
    assert!(house.ask("GET", "/healthz/leader-election").await.starts_with("HTTP/1.1 500 "));
    drop(ready);
    assert!(house.ask("GET", "/readyz").await.ends_with("ok"));
}

#[tokio::test(start_paused = true)]
async fn metrics_hold_the_daemons_and_the_processs_figures() {
    let mut house = house();
    house.meter.gauge(&names::BUILD_INFO, &[("version", "0.1.0"), ("commit", "0a1b2c")]).set(1.0);
    let answer = house.ask("GET", "/metrics").await;
    assert!(answer.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{answer}");
    assert!(answer.contains("csi_control_plane_build_info{version=\"0.1.0\",commit=\"0a1b2c\"} 1\n"), "{answer}");
    assert!(answer.contains("# TYPE process_cpu_seconds_total counter\n"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn the_page_and_the_report_are_served_hardened() {
    let mut house = house();
    house.board.driver(|| demo().driver.unwrap()).forever();
    let page = house.ask("GET", "/").await;
    assert!(
        page.contains("content-type: text/html; charset=utf-8\r\n") && page.contains("<h1>demo.csi.example.com</h1>")
    );
    for header in [
        "content-security-policy: default-src 'none'; style-src 'sha256-",
        "x-content-type-options: nosniff\r\n",
        "x-frame-options: DENY\r\n",
        "referrer-policy: no-referrer\r\n",
        "cache-control: no-store\r\n",
    ] {
        assert!(page.contains(header), "{header}");
        assert!(house.ask("GET", "/nowhere").await.contains(header), "{header}");
    }
    let json = house.ask("GET", "/status.json").await;
    let (_, body) = json.split_once("\r\n\r\n").unwrap();
    let report: crate::diagnostics::StatusReport = serde_json::from_str(body).unwrap();
    assert_eq!(report.driver, demo().driver);
}

#[tokio::test(start_paused = true)]
async fn only_get_and_head_are_answered() {
    let mut house = house();
    for path in ["/", "/status.json", "/metrics", "/livez"] {
        let head = house.ask("HEAD", path).await;
        assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
        for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
            let answer = house.ask(method, path).await;
            assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("allow: GET,HEAD\r\n"), "{answer}");
        }
    }
    assert!(house.ask("GET", "/nowhere").await.starts_with("HTTP/1.1 404 "));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_asks_is_dropped_and_takes_nobodys_place() {
    let mut house = house();
    let mut idle: Vec<DuplexStream> = (0..LIMITS.connections).map(|_| house.connect()).collect();
    // Every place is taken; the next client gets that of the first.
    let answer = house.ask("GET", "/livez").await;
    assert!(answer.ends_with("ok"), "{answer}");
    let mut rest = Vec::new();
    idle[0].read_to_end(&mut rest).await.unwrap();
}

/// A page that no buffer of a connection holds: 8 MiB.
fn long_page(board: &Board) {
    board.warnings(vec!["x".repeat(8 << 20)]).forever();
}

#[tokio::test]
async fn clients_that_ask_and_never_read_take_nobodys_place() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let board = Board::new("0.1.0", Clock::system());
    long_page(&board);
    // None of them runs out of time here.
    let limits = Limits { connections: 4, ..LIMITS };
    let (tasks, stop) = (Tasks::new("test").0, CancellationToken::new());
    tasks.spawn("server", serve_within(limits, listener, board, Meter::new(), stop.clone()));
    let mut stuck = Vec::new();
    for _ in 0..limits.connections {
        let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET /status.json HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        // The answer has begun.
        client.read_exact(&mut [0; 15]).await.unwrap();
        stuck.push(client);
    }
    let probe = async {
        let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = timeout(Duration::from_secs(10), probe).await.expect("an answer");
    assert!(answer.ends_with("ok"), "{answer}");
    // The oldest had to go, whether or not that is told as an error.
    let mut rest = Vec::new();
    let _ = timeout(Duration::from_secs(10), stuck[0].read_to_end(&mut rest)).await.expect("the end of it");
    assert!(rest.len() < 8 << 20, "{} bytes", rest.len());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_read_is_given_up_in_time() {
    let mut house = house();
    long_page(&house.board);
    let mut stuck = house.connect();
    stuck.write_all(b"GET /status.json HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let patience = LIMITS.life + LIMITS.answer + Duration::from_secs(1);
    assert!(timeout(patience, &mut house.serving).await.is_err(), "the server goes on");
    let mut rest = Vec::new();
    stuck.read_to_end(&mut rest).await.unwrap();
    assert!((1..8 << 20).contains(&rest.len()), "{} bytes", rest.len());
}

#[tokio::test(start_paused = true)]
async fn a_source_that_panics_ends_one_connection_and_is_shown() {
    let mut house = house();
    let broken = house.board.tasks(|| panic!("cannot count"));
    assert_eq!(house.ask("GET", "/").await, "");
    drop(broken);
    let page = house.ask("GET", "/").await;
    assert!(page.contains("panicked: cannot count"), "{page}");
    assert!(house.ask("GET", "/metrics").await.contains("task_failures_total{task=\"diagnostics.connection\"} 1"));
}

#[tokio::test(start_paused = true)]
async fn a_stop_closes_kept_connections_and_returns() {
    let mut house = house();
    let mut kept = house.connect();
    kept.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = [0; 15];
    tokio::select! {
        biased;
        read = kept.read_exact(&mut answer) => assert_eq!(read.unwrap(), 15),
        () = &mut house.serving => panic!("the server ended"),
    }
    let stopped = tokio::time::Instant::now();
    house.stop.cancel();
    house.serving.await;
    assert!(stopped.elapsed() < DRAIN, "{:?}", stopped.elapsed());
    let mut rest = Vec::new();
    kept.read_to_end(&mut rest).await.unwrap();
    assert!(rest.ends_with(b"ok"));
}
