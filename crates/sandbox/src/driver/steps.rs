//! What has to be done to volumes' content and to mounts, so that they are as a decision says. Pure.

use super::mounts::Mounts;
use super::state::{State, Volume};
use super::validate;
use base::proto::volume_content_source::Type as Source;

/// One thing to do. Each is a success if it is done already: a driver that died in between does it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Makes the content of a volume: a file of its size for a device, a folder otherwise.
    Make { volume: String, is_block: bool, capacity: i64, from: Option<String> },
    /// Makes a device larger. A folder has no size.
    Grow { volume: String, capacity: i64 },
    /// Copies a volume's content: a snapshot.
    Copy { from: String, to: String },
    /// Removes the content of a volume or snapshot.
    Remove { id: String },
    /// Mounts the folder of a volume, or gets a device for its file.
    Stage { volume: String, at: String, is_block: bool },
    /// Undoes [`Step::Stage`].
    Unstage { at: String },
    /// Mounts what was staged at the path of a pod.
    Publish { staging: String, at: String, is_block: bool, readonly: bool },
    /// Undoes [`Step::Publish`].
    Unpublish { at: String },
}

/// What leads from one state to the next on the node `here`. A process that stands on no node mounts nothing.
pub(super) fn steps(before: &State, after: &State, here: Option<&str>) -> Vec<Step> {
    let mut steps = content(before, after);
    let nowhere = Mounts::default();
    let [old, new] = [before, after].map(|state| here.and_then(|here| state.mounts.get(here)).unwrap_or(&nowhere));
    for (_, at) in old.targets.keys().filter(|place| !new.targets.contains_key(*place)) {
        steps.push(Step::Unpublish { at: at.clone() });
    }
    for (_, at) in old.staged.keys().filter(|place| !new.staged.contains_key(*place)) {
        steps.push(Step::Unstage { at: at.clone() });
    }
    for ((volume, at), staged) in new.staged.iter().filter(|(place, _)| !old.staged.contains_key(*place)) {
        let is_block = validate::is_block(&staged.capability);
        steps.push(Step::Stage { volume: volume.clone(), at: at.clone(), is_block });
    }
    for ((_, at), target) in new.targets.iter().filter(|(place, _)| !old.targets.contains_key(*place)) {
        let (staging, is_block) = (target.staging.clone(), validate::is_block(&target.capability));
        steps.push(Step::Publish { staging, at: at.clone(), is_block, readonly: target.readonly });
    }
    steps
}

fn content(before: &State, after: &State) -> Vec<Step> {
    let mut steps = Vec::new();
    for (id, volume) in &after.volumes {
        let (id, capacity) = (id.clone(), volume.capacity);
        match before.volumes.get(&id) {
            None => steps.push(Step::Make { volume: id, is_block: volume.is_block(), capacity, from: volume.origin() }),
            Some(old) if old.capacity != capacity && volume.is_block() => {
                steps.push(Step::Grow { volume: id, capacity });
            }
            Some(_) => {}
        }
    }
    for (id, snapshot) in after.snapshots.iter().filter(|(id, _)| !before.snapshots.contains_key(*id)) {
        steps.push(Step::Copy { from: snapshot.source.clone(), to: id.clone() });
    }
    let volumes = before.volumes.keys().filter(|id| !after.volumes.contains_key(*id));
    let snapshots = before.snapshots.keys().filter(|id| !after.snapshots.contains_key(*id));
    steps.extend(volumes.chain(snapshots).map(|id| Step::Remove { id: id.clone() }));
    steps
}

impl Volume {
    fn is_block(&self) -> bool {
        self.capabilities.first().is_some_and(validate::is_block)
    }

    /// The volume or snapshot that its content is a copy of.
    fn origin(&self) -> Option<String> {
        match self.source.as_ref()?.r#type.as_ref()? {
            Source::Snapshot(source) => Some(source.snapshot_id.clone()),
            Source::Volume(source) => Some(source.volume_id.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::mounts::{Staged, Target};
    use super::super::profile::GIB;
    use super::super::state_tests::mount;
    use super::*;
    use base::proto::VolumeCapability;
    use base::proto::VolumeContentSource;
    use base::proto::volume_capability::access_mode::Mode;
    use base::proto::volume_capability::{AccessType, BlockVolume};
    use base::proto::volume_content_source::SnapshotSource;

    fn block() -> VolumeCapability {
        VolumeCapability { access_type: Some(AccessType::Block(BlockVolume {})), ..mount(Mode::SingleNodeWriter) }
    }

    fn changed(state: &State, change: impl FnOnce(&mut State)) -> State {
        let mut after = state.clone();
        change(&mut after);
        after
    }

    #[test]
    fn content_is_made_grown_copied_and_removed_with_its_volume() {
        let empty = State::default();
        let filled = changed(&empty, |state| {
            state.seed("folder");
            state.seed("device").capabilities = vec![block()];
        });
        let make = |volume: &str, is_block, from: Option<&str>| Step::Make {
            volume: volume.to_owned(),
            is_block,
            capacity: GIB,
            from: from.map(str::to_owned),
        };
        assert_eq!(steps(&empty, &filled, None), [make("device", true, None), make("folder", false, None)]);
        assert_eq!(steps(&filled, &filled, None), []);

        let grown = changed(&filled, |state| {
            for volume in state.volumes.values_mut() {
                volume.capacity = 2 * GIB;
            }
        });
        assert_eq!(steps(&filled, &grown, None), [Step::Grow { volume: "device".to_owned(), capacity: 2 * GIB }]);

        let mut cut = String::new();
        let copied = changed(&filled, |state| cut = state.cut("s", "folder", jiff::Timestamp::UNIX_EPOCH).unwrap());
        assert_eq!(steps(&filled, &copied, None), [Step::Copy { from: "folder".to_owned(), to: cut.clone() }]);
        let restored = changed(&copied, |state| {
            let source = SnapshotSource { snapshot_id: cut.clone() };
            state.seed("restored").source = Some(VolumeContentSource { r#type: Some(Source::Snapshot(source)) });
        });
        assert_eq!(steps(&copied, &restored, None), [make("restored", false, Some(&cut))]);
        let gone: Vec<_> = ["device", "folder", &cut].map(|id| Step::Remove { id: id.to_owned() }).into();
        assert_eq!(steps(&copied, &empty, None), gone);
    }

    #[test]
    fn a_node_mounts_what_is_its_own_and_takes_it_down_in_the_reverse_order() {
        let at = |path: &str| ("v".to_owned(), path.to_owned());
        let mounts = |capability: VolumeCapability| Mounts {
            staged: BTreeMap::from([(at("/staging"), Staged { capability: capability.clone() })]),
            targets: BTreeMap::from([(
                at("/pod"),
                Target { staging: "/staging".to_owned(), capability, readonly: true },
            )]),
        };
        for (capability, is_block) in [(mount(Mode::SingleNodeWriter), false), (block(), true)] {
            let empty = State::default();
            let mounted = changed(&empty, |state| {
                state.mounts.insert("n0".to_owned(), mounts(capability));
            });
            let [staging, pod] = ["/staging", "/pod"].map(str::to_owned);
            let up = [
                Step::Stage { volume: "v".to_owned(), at: staging.clone(), is_block },
                Step::Publish { staging: staging.clone(), at: pod.clone(), is_block, readonly: true },
            ];
            assert_eq!(steps(&empty, &mounted, Some("n0")), up);
            let down = [Step::Unpublish { at: pod }, Step::Unstage { at: staging }];
            assert_eq!(steps(&mounted, &empty, Some("n0")), down);
            assert_eq!(steps(&empty, &mounted, Some("n1")), [], "another node's");
        }
    }
}
