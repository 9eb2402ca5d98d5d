use super::*;
use futures::StreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

const SECOND: Duration = Duration::from_secs(1);

async fn pair(network: &Network) -> (BoxedIo, BoxedIo, Incoming) {
    let mut incoming = network.listen("b:csi").unwrap();
    let near = network.dial("a", "b:csi").dial().await.unwrap();
    let far = incoming.next().await.unwrap().unwrap();
    (near, far, incoming)
}

async fn read(io: &mut BoxedIo) -> io::Result<Vec<u8>> {
    let mut buf = vec![0; 64];
    let count = io.read(&mut buf).await?;
    buf.truncate(count);
    Ok(buf)
}

async fn is_stuck(io: &mut BoxedIo) -> bool {
    timeout(SECOND, read(io)).await.is_err()
}

#[tokio::test(start_paused = true)]
async fn bytes_arrive_after_the_latency_and_in_order() {
    let network = Network::new();
    network.set_latency("a", "b", Duration::from_millis(50));
    let start = Instant::now();
    let (mut near, mut far, _incoming) = pair(&network).await;
    assert_eq!(start.elapsed(), Duration::from_millis(100), "a hand-shake is a round trip");
    near.write_all(b"one").await.unwrap();
    network.set_latency("a", "b", Duration::from_millis(10));
    near.write_all(b"two").await.unwrap();
    assert_eq!(read(&mut far).await.unwrap(), b"onetwo");
    assert_eq!(start.elapsed(), Duration::from_millis(150));
    far.write_all(b"back").await.unwrap();
    assert_eq!(read(&mut near).await.unwrap(), b"back");
    assert_eq!(start.elapsed(), Duration::from_millis(160));
}

#[tokio::test(start_paused = true)]
async fn a_full_buffer_makes_the_writer_wait() {
    let network = Network::new();
    let (mut near, mut far, _incoming) = pair(&network).await;
    let data: Vec<u8> = (0..200_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    assert!(timeout(SECOND, near.write_all(&data)).await.is_err());
    drop(near);
    let mut got = Vec::new();
    far.read_to_end(&mut got).await.unwrap();
    assert_eq!(got.len(), 64 * 1024);
    assert_eq!(got, data[..got.len()]);
}

#[tokio::test(start_paused = true)]
async fn dropping_one_end_is_an_end_of_file_for_the_other() {
    let network = Network::new();
    let (mut near, mut far, _incoming) = pair(&network).await;
    near.write_all(b"last words").await.unwrap();
    drop(near);
    assert_eq!(read(&mut far).await.unwrap(), b"last words");
    assert_eq!(read(&mut far).await.unwrap(), b"");
    assert_eq!(far.write_all(b"hello?").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    drop(far);
    assert_eq!(network.connections(), []);
}

#[tokio::test(start_paused = true)]
async fn a_partition_stalls_connections_until_it_heals() {
    let network = Network::new();
    let (mut near, mut far, _incoming) = pair(&network).await;
    network.partition("a", "b", Cut::Hang);
    near.write_all(b"late").await.unwrap();
    drop(near);
    assert!(is_stuck(&mut far).await);
    network.heal("a", "b");
    assert_eq!(read(&mut far).await.unwrap(), b"late");
    assert_eq!(read(&mut far).await.unwrap(), b"");
}

#[tokio::test(start_paused = true)]
async fn a_one_way_partition_lets_the_other_way_pass() {
    let network = Network::new();
    let (mut near, mut far, _incoming) = pair(&network).await;
    network.partition_one_way("b", "a", Cut::Refuse);
    near.write_all(b"request").await.unwrap();
    assert_eq!(read(&mut far).await.unwrap(), b"request");
    far.write_all(b"answer").await.unwrap();
    assert!(is_stuck(&mut near).await);
    network.heal_all();
    assert_eq!(read(&mut near).await.unwrap(), b"answer");
}

#[tokio::test(start_paused = true)]
async fn new_connections_hang_or_are_refused() {
    let network = Network::new();
    let _incoming = network.listen("b").unwrap();
    let dial = network.dial("a", "b");
    network.partition("b", "a", Cut::Refuse);
    assert_eq!(dial.dial().await.err().unwrap().kind(), io::ErrorKind::ConnectionRefused);
    network.partition("a", "b", Cut::Hang);
    let hanging = dial.dial();
    let heal = async {
        tokio::time::sleep(SECOND).await;
        network.heal("a", "b");
        Instant::now()
    };
    let start = Instant::now();
    let (connection, healed) = tokio::join!(hanging, heal);
    assert!(connection.is_ok() && healed == start + SECOND);
    assert_eq!(network.dial("a", "c").dial().await.err().unwrap().kind(), io::ErrorKind::ConnectionRefused);
}

#[tokio::test(start_paused = true)]
async fn a_reset_reaches_both_ends_even_over_a_cut_link() {
    let network = Network::new();
    let (mut near, mut far, _incoming) = pair(&network).await;
    near.write_all(b"lost").await.unwrap();
    network.partition("a", "b", Cut::Hang);
    network.reset("b", "a");
    for io in [&mut near, &mut far] {
        assert_eq!(read(io).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(io.write_all(b"x").await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_resets_the_peers_and_frees_the_address() {
    let network = Network::new();
    let (mut near, mut far, mut incoming) = pair(&network).await;
    assert_eq!(network.listen("b:csi").unwrap_err().kind(), io::ErrorKind::AddrInUse);
    network.partition("a", "b", Cut::Hang);
    network.crash("b");
    assert_eq!(read(&mut far).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    drop(far);
    assert!(incoming.next().await.is_none());
    let next_life = network.listen("b:csi").unwrap();
    drop(incoming);
    assert!(is_stuck(&mut near).await, "no one learns of a crash over a cut link");
    network.heal("a", "b");
    assert_eq!(read(&mut near).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    assert!(network.dial("a", "b:csi").dial().await.is_ok());
    drop(next_life);
    assert!(network.dial("a", "b:csi").dial().await.is_err());
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// Every byte arrives once and in order, for any latency and any number of cuts.
    #[test]
    fn no_byte_is_lost_or_swapped(steps in proptest::collection::vec((0..6_u8, 1..40_000_usize), 1..25)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async move {
            let network = Network::new();
            let (mut near, mut far, _incoming) = pair(&network).await;
            let write = async {
                let mut sent = Vec::new();
                for (what, size) in steps {
                    match what {
                        0 => network.partition("a", "b", Cut::Hang),
                        1 => network.set_latency("a", "b", Duration::from_micros(u64::try_from(size).unwrap())),
                        2 => tokio::time::sleep(Duration::from_micros(7)).await,
                        _ => {
                            let chunk: Vec<u8> = (0..size).map(|n| u8::try_from((sent.len() + n) % 253).unwrap()).collect();
                            while timeout(SECOND, near.write_all(&chunk[..1])).await.is_err() {
                                network.heal_all();
                            }
                            sent.push(chunk[0]);
                            network.heal_all();
                            near.write_all(&chunk[1..]).await.unwrap();
                            sent.extend(&chunk[1..]);
                        }
                    }
                }
                network.heal_all();
                drop(near);
                sent
            };
            let mut got = Vec::new();
            let (sent, read) = tokio::join!(write, far.read_to_end(&mut got));
            assert!(read.is_ok() && got == sent);
        });
    }
}
