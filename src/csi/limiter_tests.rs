//! Passes: their order, and those whose callers go away.

use std::task::Poll;

use futures::poll;

use super::*;

const BOUNDS: Bounds = Bounds { min: 2, max: 2 };
const RPC: &str = "/csi.v1.Controller/CreateVolume";

fn limiters() -> (Limiters, Arc<Limiter>) {
    let limiters = Limiters::default();
    let limiter = limiters.of(RPC, BOUNDS, Clock::system());
    (limiters, limiter)
}

async fn pass(limiter: &Arc<Limiter>, bounds: Bounds) -> Pass {
    let shown = Shown { driver: "demo.csi".into(), meter: Meter::default() };
    limiter.pass(bounds, &shown).await
}

fn end(pass: Pass) {
    pass.end(Code::Ok, Some(Code::Ok), Duration::from_secs(1));
}

#[tokio::test]
async fn calls_wait_in_their_order() {
    let (limiters, limiter) = limiters();
    let (first, second) = (pass(&limiter, BOUNDS).await, pass(&limiter, BOUNDS).await);
    let (mut third, mut fourth) = (Box::pin(pass(&limiter, BOUNDS)), Box::pin(pass(&limiter, BOUNDS)));
    assert!(poll!(&mut third).is_pending() && poll!(&mut fourth).is_pending());
    let [activity] = &limiters.activity()[..] else { panic!("one RPC") };
    assert_eq!((activity.in_flight, activity.waiting, activity.limit), (2, 2, None));
    end(second);
    assert!(poll!(&mut fourth).is_pending());
    let Poll::Ready(third) = poll!(&mut third) else { panic!("there is room") };
    // Without a word, as where the call broke off.
    drop((first, third));
    assert!(poll!(&mut fourth).is_ready());
    assert_eq!(limiters.activity(), []);
}

#[tokio::test]
async fn a_caller_that_goes_away_holds_no_place() {
    let (limiters, limiter) = limiters();
    let (first, second) = (pass(&limiter, BOUNDS).await, pass(&limiter, BOUNDS).await);
    let (mut third, mut fourth) = (Box::pin(pass(&limiter, BOUNDS)), Box::pin(pass(&limiter, BOUNDS)));
    assert!(poll!(&mut third).is_pending() && poll!(&mut fourth).is_pending());
    // One while it waits, the other with its pass on the way.
    drop(third);
    end(first);
    drop(fourth);
    let fifth = pass(&limiter, BOUNDS).await;
    end(fifth);
    end(second);
    assert_eq!(limiter.activity().in_flight, 0);
    assert_eq!(limiters.activity(), []);
}

#[tokio::test]
async fn wider_bounds_let_those_begin_that_wait() {
    let (_, limiter) = limiters();
    let _both = (pass(&limiter, BOUNDS).await, pass(&limiter, BOUNDS).await);
    let mut third = Box::pin(pass(&limiter, BOUNDS));
    assert!(poll!(&mut third).is_pending());
    let wider = Bounds { min: 1, max: 4 };
    let mut fourth = Box::pin(pass(&limiter, wider));
    assert!(poll!(&mut fourth).is_ready() && poll!(&mut third).is_ready());
}

#[tokio::test(start_paused = true)]
async fn the_metric_shows_a_limit_that_ends_as_a_call_begins() {
    let bounds = Bounds { min: 1, max: 40 };
    let limiter = Limiters::default().of(RPC, bounds, Clock::system());
    let shown = Shown { driver: "demo.csi".into(), meter: Meter::default() };
    let mut passes = Vec::new();
    for _ in 0..40 {
        passes.push(limiter.pass(bounds, &shown).await);
    }
    assert!(!shown.meter.render().contains(names::RPC_LIMIT.name));
    for pass in passes {
        pass.end(Code::ResourceExhausted, Some(Code::ResourceExhausted), Duration::from_secs(1));
    }
    let limit = limiter.activity().limit.expect("the calls are limited");
    let series = |limit| {
        let labels = format!("driver_name=\"demo.csi\",method_name=\"{RPC}\"");
        format!("{}{{{labels}}} {limit}\n", names::RPC_LIMIT.name)
    };
    assert!(shown.meter.render().contains(&series(limit)), "{}", shown.meter.render());
    tokio::time::advance(Duration::from_secs(3600)).await;
    end(limiter.pass(bounds, &shown).await);
    assert!(shown.meter.render().contains(&series(40)), "{}", shown.meter.render());
}
