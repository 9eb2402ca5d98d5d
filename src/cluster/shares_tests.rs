//! The rules of the shares, as examples and as a random walk.

use proptest::prelude::*;

use super::*;

const NAMES: [&str; 3] = ["attacher", "provisioner", "daemon"];

#[test]
fn a_share_alone_has_all_permits_and_waits_in_order() {
    let mut shares = Shares::new(2);
    assert_eq!((shares.ask("a"), shares.ask("a")), (None, None));
    let (first, second) = (shares.ask("a").unwrap(), shares.ask("a").unwrap());
    assert_eq!([shares.give_back("a"), shares.give_back("a")], [Some(first), Some(second)]);
    assert_eq!([shares.give_back("a"), shares.give_back("a")], [None, None]);
    assert_eq!(shares.free(), 2);
}

#[test]
fn a_share_that_comes_during_the_burst_of_another_is_served_next_and_gets_half_in_the_end() {
    let mut shares = Shares::new(4);
    let burst: Vec<u64> = (0..100).filter_map(|_| shares.ask("provisioner")).collect();
    assert_eq!(burst.len(), 96);
    let late: Vec<u64> = (0..3).filter_map(|_| shares.ask("attacher")).collect();
    let served: Vec<u64> = (0..3).filter_map(|_| shares.give_back("provisioner")).collect();
    assert_eq!(served, [late[0], late[1], burst[0]], "until each has two");
    assert_eq!(shares.give_back("attacher"), Some(late[2]));
}

#[test]
fn with_one_permit_two_shares_take_turns() {
    let mut shares = Shares::new(1);
    assert_eq!(shares.ask("a"), None);
    let [a, b] = ["a", "b"].map(|name| [shares.ask(name).unwrap(), shares.ask(name).unwrap()]);
    let served = ["a", "b", "a", "b"].map(|holder| shares.give_back(holder).unwrap());
    assert_eq!(served, [b[0], a[0], b[1], a[1]]);
}

/// A step of the walk.
#[derive(Debug, Clone, Copy)]
enum Step {
    Ask(usize),
    /// The holder at this place gives back.
    GiveBack(usize),
    /// The request that waits at this place leaves.
    Leave(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..NAMES.len()).prop_map(Step::Ask),
        2 => any::<usize>().prop_map(Step::GiveBack),
        1 => any::<usize>().prop_map(Step::Leave),
    ];
    prop::collection::vec(step, 1..200)
}

/// Which shares hold permits and which requests wait, as the walk knows.
#[derive(Default)]
struct Seen {
    held: Vec<&'static str>,
    waiting: Vec<(&'static str, u64)>,
}

impl Seen {
    fn held(&self, name: &str) -> usize {
        self.held.iter().filter(|held| **held == name).count()
    }

    fn waits(&self, name: &str) -> bool {
        self.waiting.iter().any(|(waiting, _)| *waiting == name)
    }

    /// The request of this number has a permit now. It was the first of its share, and no share that waits holds fewer.
    fn served(&mut self, number: u64) {
        let at = self.waiting.iter().position(|(_, waiting)| *waiting == number).expect("it waited");
        let (name, _) = self.waiting[at];
        assert!(!self.waiting[..at].iter().any(|(waiting, _)| *waiting == name), "out of turn");
        self.waiting.remove(at);
        for other in NAMES.into_iter().filter(|other| self.waits(other)) {
            assert!(self.held(name) <= self.held(other), "{name} before {other}, which waits and holds fewer");
        }
        self.held.push(name);
    }
}

proptest! {
    #[test]
    fn no_permit_is_lost_or_idle_and_the_share_that_holds_the_fewest_is_next(permits in 1_usize..6, steps in steps()) {
        let (mut shares, mut seen) = (Shares::new(permits), Seen::default());
        for step in steps {
            match step {
                Step::Ask(name) => match shares.ask(NAMES[name]) {
                    None => seen.held.push(NAMES[name]),
                    Some(number) => seen.waiting.push((NAMES[name], number)),
                },
                Step::GiveBack(at) if !seen.held.is_empty() => {
                    let holder = seen.held.swap_remove(at % seen.held.len());
                    if let Some(number) = shares.give_back(holder) {
                        seen.served(number);
                    }
                }
                Step::Leave(at) if !seen.waiting.is_empty() => {
                    let (name, number) = seen.waiting.remove(at % seen.waiting.len());
                    shares.leave(name, number);
                }
                Step::GiveBack(_) | Step::Leave(_) => {}
            }
            prop_assert_eq!(shares.free() + seen.held.len(), permits, "as many as there were");
            prop_assert!(shares.free() == 0 || seen.waiting.is_empty(), "idle while a request waits");
        }
        while let Some(holder) = seen.held.pop() {
            if let Some(number) = shares.give_back(holder) {
                seen.served(number);
            }
        }
        prop_assert!(seen.waiting.is_empty(), "left behind: {:?}", seen.waiting);
        prop_assert_eq!(shares.free(), permits);
    }

    #[test]
    fn shares_that_always_wait_come_to_hold_the_same(permits in 1_usize..20, ends in prop::collection::vec(any::<usize>(), 400)) {
        let mut shares = Shares::new(permits);
        let mut seen = Seen::default();
        for name in NAMES {
            for _ in 0..600 {
                match shares.ask(name) {
                    None => seen.held.push(name),
                    Some(number) => seen.waiting.push((name, number)),
                }
            }
        }
        // The first share has all permits. Once it has given back each of them, the parts are fair.
        for _ in 0..permits {
            let holder = seen.held.remove(0);
            let number = shares.give_back(holder).unwrap();
            seen.served(number);
        }
        for at in ends {
            let holder = seen.held.swap_remove(at % seen.held.len());
            let number = shares.give_back(holder).unwrap();
            seen.served(number);
            let parts = NAMES.map(|name| seen.held(name));
            let [least, most] = [parts.iter().min(), parts.iter().max()].map(|part| *part.unwrap());
            prop_assert!(most - least <= 1, "{parts:?}");
        }
    }
}
