//! The rows of node-and-health spec B4 as a table, without a file, a kubelet or a driver.

use super::*;

struct Case {
    now: Instant,
    driver: DriverSeen,
    place: Place,
    announced: Option<Announced>,
    outdated: Option<Outdated>,
    missing: Option<Missing>,
    dialogue: Dialogue,
    failed: Option<(Instant, String)>,
    withdraw_after: Duration,
}

/// A driver that answers, and a socket that the kubelet sees, announced at the start.
fn case() -> Case {
    let start = Instant::now();
    Case {
        now: start,
        driver: DriverSeen { name: Some("demo.csi".into()), silence: None, since: start },
        place: Place::Ours,
        announced: Some(Announced { driver: "demo.csi".into(), at: start }),
        outdated: None,
        missing: None,
        dialogue: Dialogue::new(),
        failed: None,
        withdraw_after: Duration::ZERO,
    }
}

impl Case {
    fn view(&self) -> View<'_> {
        View {
            now: self.now,
            driver: &self.driver,
            place: &self.place,
            announced: self.announced.as_ref(),
            outdated: self.outdated,
            missing: self.missing,
            dialogue: &self.dialogue,
            failed: self.failed.as_ref(),
            withdraw_after: self.withdraw_after,
            next: Reason::Start,
        }
    }

    fn step(&self) -> Step {
        next_step(&self.view())
    }

    fn state(&self) -> State {
        state(&self.view())
    }

    fn passes(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }
}

#[test]
fn n17_n18_nothing_is_announced_before_the_driver_answers() {
    let mut case = Case { announced: None, place: Place::AnotherSocket, ..case() };
    case.driver = DriverSeen { name: None, silence: Some("no such file".into()), since: case.now };
    for _ in 0..5 {
        assert_eq!(case.step(), Step::Wait);
        assert_eq!(case.state(), State::WaitingForDriver("no such file".into()));
        assert!(!case.state().is_ready(false));
        case.passes(60);
    }
    case.driver = DriverSeen { name: Some("demo.csi".into()), silence: None, since: case.now };
    assert_eq!(case.step(), Step::Announce(Reason::Start), "over the stale file");
}

#[test]
fn n3_n6_what_is_in_the_way_and_a_missing_directory_are_left_alone() {
    for (place, expected) in [
        (Place::NotASocket, State::NotASocket),
        (Place::NoDirectory, State::NoDirectory),
        (Place::Unreadable("denied".into()), State::Failed("denied".into())),
    ] {
        for announced in [None, case().announced] {
            let case = Case { place: place.clone(), announced, ..case() };
            assert_eq!(case.step(), Step::Wait, "{place:?}");
            assert_eq!(case.state(), expected);
            assert!(!case.state().is_ready(true));
        }
    }
}

#[test]
fn n14_a_file_that_has_gone_is_announced_again_and_another_instance_is_not_fought() {
    let mut case = case();
    case.dialogue.says(case.now, Ok(()));
    assert_eq!((case.step(), case.state()), (Step::Wait, State::Registered));
    case.place = Place::AnotherSocket;
    assert_eq!((case.step(), case.state()), (Step::Wait, State::Replaced));
    assert!(case.state().is_ready(true));
    case.place = Place::Nothing;
    assert_eq!(case.step(), Step::Announce(Reason::Vanished));
}

#[test]
fn a_socket_that_could_not_be_announced_is_tried_again_after_ten_seconds() {
    let mut case = Case { announced: None, place: Place::Nothing, ..case() };
    case.failed = Some((case.now, "read-only file system".into()));
    assert_eq!(case.state(), State::Failed("read-only file system".into()));
    case.passes(9);
    assert_eq!(case.step(), Step::Wait);
    case.passes(1);
    assert_eq!(case.step(), Step::Announce(Reason::Start));
}

#[test]
fn n12_n19_a_refusal_is_repeated_with_growing_pauses_unless_the_kubelet_asks_again_itself() {
    let mut case = case();
    let mut waited = Vec::new();
    for _ in 0..9 {
        case.dialogue.asks(case.now);
        assert_eq!(case.state(), State::Asked);
        case.dialogue.says(case.now, Err("NodeGetInfo failed".into()));
        assert_eq!(case.state(), State::Refused("NodeGetInfo failed".into()));
        assert!(!case.state().is_ready(true));
        let mut seconds = 0;
        while case.step() == Step::Wait {
            case.passes(1);
            seconds += 1;
        }
        assert_eq!(case.step(), Step::Announce(Reason::Refused));
        waited.push(seconds);
        case.dialogue.announced(Reason::Refused);
        case.announced = Some(Announced { driver: "demo.csi".into(), at: case.now });
        assert_eq!(case.state(), State::Refused("NodeGetInfo failed".into()), "until the kubelet says otherwise");
    }
    assert_eq!(waited, [1, 2, 4, 8, 16, 32, 64, 120, 120]);
    case.passes(3);
    case.dialogue.asks(case.now);
    case.passes(129);
    assert_eq!(case.step(), Step::Wait, "the kubelet is at it");
    case.dialogue.says(case.now, Ok(()));
    assert_eq!((case.state(), case.dialogue.repeated), (State::Registered, 0));
}

#[test]
fn a_kubelet_that_does_not_ask_or_does_not_answer_is_a_fault_after_its_own_limits() {
    let mut case = case();
    case.passes(30);
    assert_eq!(case.state(), State::Announced);
    assert!(!case.state().is_ready(false) && case.state().is_ready(true));
    case.passes(1);
    assert_eq!(case.state(), State::NotAsked);
    assert!(!case.state().is_ready(true));
    case.dialogue.asks(case.now);
    case.passes(130);
    assert_eq!(case.state(), State::Asked);
    case.passes(1);
    assert_eq!(case.state(), State::NotAnswered);
    assert!(!case.state().is_ready(true));
    assert_eq!(case.step(), Step::Wait, "a new socket would only begin the kubelet's work anew");
}

#[test]
fn n15_a_kubelet_that_asks_again_registers_again_without_a_write() {
    let mut case = case();
    case.dialogue.asks(case.now);
    case.dialogue.says(case.now, Ok(()));
    case.passes(3600);
    case.dialogue.asks(case.now);
    assert_eq!((case.step(), case.state()), (Step::Wait, State::Asked));
    case.passes(1);
    case.dialogue.says(case.now, Ok(()));
    assert_eq!((case.step(), case.state()), (Step::Wait, State::Registered));
}

#[test]
fn n16_a_silent_driver_stays_announced_unless_the_configuration_says_for_how_long() {
    let mut case = case();
    case.dialogue.says(case.now, Ok(()));
    case.driver = DriverSeen { silence: Some("gone".into()), ..case.driver };
    case.passes(100_000);
    assert_eq!((case.step(), case.state()), (Step::Wait, State::Registered));
    case.withdraw_after = Duration::from_secs(60);
    assert_eq!(case.step(), Step::Withdraw(Reason::Returned));
    case.driver.since = case.now;
    case.passes(59);
    assert_eq!(case.step(), Step::Wait);
    case.passes(1);
    assert_eq!(case.step(), Step::Withdraw(Reason::Returned));
    (case.announced, case.place) = (None, Place::Nothing);
    case.dialogue.withdrawn();
    assert_eq!((case.step(), case.state()), (Step::Wait, State::WaitingForDriver("gone".into())));
    assert!(!case.state().is_ready(true));
}

#[test]
fn a_driver_with_another_name_is_withdrawn_under_the_old_one() {
    let mut case = case();
    case.driver.name = Some("other.csi".into());
    assert_eq!(case.step(), Step::Withdraw(Reason::Renamed));
    case.driver.silence = Some("gone".into());
    assert_eq!(case.step(), Step::Wait, "a name that was seen once and is not there now");
}

#[test]
fn a_changed_configuration_announces_anew_only_where_the_kubelet_needs_it() {
    let mut case = case();
    case.dialogue.says(case.now, Ok(()));
    assert_eq!(case.step(), Step::Wait, "what the kubelet knows is still so");
    case.outdated = Some(Outdated::Endpoint);
    assert_eq!(case.step(), Step::Announce(Reason::Reconfigured), "over the old one: the file never misses");
    for (place, silence) in [(Place::AnotherSocket, None), (Place::Ours, Some("gone".to_owned()))] {
        (case.place, case.driver.silence) = (place, silence);
        assert_eq!(case.step(), Step::Wait, "neither over another instance nor for a silent driver");
    }
    case.outdated = Some(Outdated::Directory);
    assert_eq!(case.step(), Step::Withdraw(Reason::Reconfigured), "from the old directory");
}

#[test]
fn a_driver_that_csinode_lost_is_announced_again_after_two_looks_and_no_sooner_after_the_next() {
    let mut case = case();
    let looks = |case: &mut Case| {
        case.passes(60);
        case.missing = Some(Missing::again(case.missing, case.now));
        case.step()
    };
    for round in 0..3 {
        // What was seen before the kubelet's word does not count.
        assert_eq!((looks(&mut case), looks(&mut case)), (Step::Wait, Step::Wait), "round {round}");
        case.dialogue.says(case.now, Ok(()));
        assert_eq!(looks(&mut case), Step::Wait);
        assert_eq!(looks(&mut case), Step::Announce(Reason::Lost));
        let now = case.now;
        case.dialogue.announced(Reason::Lost);
        case.announced = Some(Announced { driver: "demo.csi".into(), at: now });
        assert_eq!((case.step(), case.state()), (Step::Wait, State::Announced));
    }
    case.dialogue.says(case.now, Ok(()));
    let _ = looks(&mut case);
    case.missing = None;
    assert_eq!(looks(&mut case), Step::Wait, "it was there in between");
    let _ = looks(&mut case);
    for (place, silence) in [(Place::AnotherSocket, None), (Place::Ours, Some("gone".to_owned()))] {
        (case.place, case.driver.silence) = (place, silence);
        assert_eq!(case.step(), Step::Wait, "neither over another instance nor for a silent driver");
    }
}

#[test]
fn the_kubelet_has_the_driver_by_its_last_word_unless_the_directory_says_otherwise() {
    let mut case = case();
    let has = |case: &Case| case.state().is_registered(&case.dialogue);
    assert!(!has(&case), "announced for the first time");
    case.dialogue.asks(case.now);
    assert!(!has(&case));
    case.dialogue.says(case.now, Ok(()));
    assert!(has(&case));
    // Whatever is there instead, the kubelet has unregistered the driver, but for another instance's socket.
    for (place, has_it) in [
        (Place::NoDirectory, false),
        (Place::NotASocket, false),
        (Place::Unreadable("no".into()), false),
        (Place::AnotherSocket, true),
        (Place::Ours, true),
    ] {
        case.place = place;
        assert_eq!(has(&case), has_it, "{:?}", case.state());
    }
    // A kubelet that asks again has it until it says otherwise, or does not say anything.
    case.passes(10);
    case.dialogue.asks(case.now);
    assert!(has(&case));
    case.passes(131);
    assert!(!has(&case), "{:?}", case.state());
    case.dialogue.says(case.now, Err("NodeGetInfo: no".into()));
    assert!(!has(&case));
    case.dialogue.says(case.now, Ok(()));
    case.dialogue.announced(Reason::Vanished);
    assert!(!has(&case), "no socket was there: it is not known to have it");
}
