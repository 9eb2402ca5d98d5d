//! Attach and detach end to end: API, driver and daemon on real sockets, all in this process. Prints a table.
//!
//! `cargo bench --bench attach -- 500 5000` says how many; these two are the default.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench fails by panicking and reports by printing")]

mod support;

use support::cluster::{Cluster, DAEMON, Phase};

const CONFIG: &str = "
leaderElection: { retryPeriod: 100ms }
roles:
  attacher:
  reconciler:
";

fn main() {
    let given: Vec<usize> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let counts = match given.as_slice() {
        [] if support::only_once() => vec![50],
        [] => vec![500, 5000],
        given => given.to_vec(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    println!("| operation | at once | per second | p50 ms | p99 ms | CPU ms each (whole process) | requests each |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: | --- |");
    let footnotes: Vec<String> = counts.into_iter().map(|count| runtime.block_on(measure(count))).collect();
    for footnote in footnotes {
        println!("\n{footnote}");
    }
}

async fn measure(count: usize) -> String {
    let alone = count.min(100);
    let cluster = Cluster::with(0).await;
    let daemon = cluster.testbed.start(DAEMON, CONFIG).await.unwrap();
    // The first one waits for the daemon to lead, so it doesn't count.
    cluster.provision(0..1 + alone + count);
    cluster.attach(0..1, "self").await;
    let idle = support::resident("self");
    let mut one_by_one = Phase::nothing();
    for number in 1..=alone {
        one_by_one.add(cluster.attach(number..number + 1, "self").await);
    }
    print("attach, one by one", 1, &one_by_one);
    let burst = 1 + alone..1 + alone + count;
    print("attach", count, &cluster.attach(burst.clone(), "self").await);
    let held = support::resident("self");
    print("detach", count, &cluster.detach(burst, "self").await);
    let duplicates = cluster.duplicates();
    daemon.stop().await.unwrap();
    assert_eq!(duplicates, 0, "a volume was published twice");
    assert_eq!(cluster.testbed.driver.violations(), []);
    cluster.testbed.tear_down().await;
    format!(
        "{count}: publish calls beyond one for each attachment: {duplicates}. Memory of the whole process, the sandbox's API \
         and driver included: {} MB before, {} MB with all attached.",
        idle >> 20,
        held >> 20
    )
}

fn print(what: &str, at_once: usize, phase: &Phase) {
    println!(
        "| {what} | {at_once} | {:.0} | {:.1} | {:.1} | {:.2} | {} |",
        phase.rate(),
        phase.percentile(50),
        phase.percentile(99),
        phase.cpu_each(),
        phase.requests_each()
    );
}
