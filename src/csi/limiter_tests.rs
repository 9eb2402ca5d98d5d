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

fn end(pass: Pass) {
    pass.end(Code::Ok, Some(Code::Ok), Duration::from_secs(1), "demo.csi", &Meter::default());
}

#[tokio::test]
async fn calls_wait_in_their_order() {
    let (limiters, limiter) = limiters();
    let (first, second) = (limiter.pass(BOUNDS).await, limiter.pass(BOUNDS).await);
    let (mut third, mut fourth) = (Box::pin(limiter.pass(BOUNDS)), Box::pin(limiter.pass(BOUNDS)));
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
    let (first, second) = (limiter.pass(BOUNDS).await, limiter.pass(BOUNDS).await);
    let (mut third, mut fourth) = (Box::pin(limiter.pass(BOUNDS)), Box::pin(limiter.pass(BOUNDS)));
    assert!(poll!(&mut third).is_pending() && poll!(&mut fourth).is_pending());
    // One while it waits, the other with its pass on the way.
    drop(third);
    end(first);
    drop(fourth);
    let fifth = limiter.pass(BOUNDS).await;
    end(fifth);
    end(second);
    assert_eq!(limiter.activity().in_flight, 0);
    assert_eq!(limiters.activity(), []);
}

#[tokio::test]
async fn wider_bounds_let_those_begin_that_wait() {
    let (_, limiter) = limiters();
    let _both = (limiter.pass(BOUNDS).await, limiter.pass(BOUNDS).await);
    let mut third = Box::pin(limiter.pass(BOUNDS));
    assert!(poll!(&mut third).is_pending());
    let wider = Bounds { min: 1, max: 4 };
    let mut fourth = Box::pin(limiter.pass(wider));
    assert!(poll!(&mut fourth).is_ready() && poll!(&mut third).is_ready());
}
