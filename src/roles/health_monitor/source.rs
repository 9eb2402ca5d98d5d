//! Where the health of volumes is read: which call, by the driver's capabilities (spec C1). Pure.

use crate::csi::Capabilities;

/// The call that returns the health of volumes. A driver implements one of two generations of CSI; the newer one is preferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// CSI 1.13: a list of the volumes that are not healthy. What leaves it is asked for by [`Question::Health`].
    List,
    /// Before: `ListVolumes`, whose entries have a condition, in passes that all roles share. The question, if there is one, is for what
    /// a pass lacks.
    Listing(Option<Question>),
    /// One question for each volume.
    Get(Question),
}

/// A question for one volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// CSI 1.13: `ControllerGetVolumeHealth`.
    Health,
    /// Before: `ControllerGetVolume`, whose answer has a condition.
    Condition,
}

/// Why the driver is not asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Idle {
    /// Without the question, a volume that leaves the list could never be called healthy. Theirs ends its process.
    #[error("driver has LIST_VOLUME_HEALTH without GET_VOLUME_HEALTH")]
    ListWithoutGet,
    /// The driver knows nothing of health.
    #[error(
        "the driver has neither the capability GET_VOLUME_HEALTH nor VOLUME_CONDITION with LIST_VOLUMES or GET_VOLUME"
    )]
    NoCapability,
}

/// The calls that the driver offers and has answered with `UNIMPLEMENTED`: a capability of theirs counts as missing (spec C3).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "one for each call")]
pub struct Denied {
    /// `ControllerListVolumeHealth`.
    pub list: bool,
    /// `ControllerGetVolumeHealth`.
    pub health: bool,
    /// `ListVolumes`.
    pub listing: bool,
    /// `ControllerGetVolume`.
    pub condition: bool,
}

impl Source {
    /// The source of a driver, or why it has none.
    pub fn of(capabilities: &Capabilities, denied: Denied) -> Result<Self, Idle> {
        let get = capabilities.get_volume_health() && !denied.health;
        let list = capabilities.list_volume_health() && !denied.list;
        let condition = (capabilities.get_volume() && !denied.condition).then_some(Question::Condition);
        match (list, get) {
            (true, true) => Ok(Self::List),
            (false, true) => Ok(Self::Get(Question::Health)),
            (true, false) => Err(Idle::ListWithoutGet),
            (false, false) if !capabilities.volume_condition() => Err(Idle::NoCapability),
            (false, false) if capabilities.list_volumes() && !denied.listing => Ok(Self::Listing(condition)),
            (false, false) => condition.map(Self::Get).ok_or(Idle::NoCapability),
        }
    }

    /// What one volume is asked, if anything.
    pub fn question(self) -> Option<Question> {
        match self {
            Self::List => Some(Question::Health),
            Self::Listing(question) => question,
            Self::Get(question) => Some(question),
        }
    }

    /// Whether one answer is about all volumes.
    pub fn is_list(self) -> bool {
        matches!(self, Self::List | Self::Listing(_))
    }
}

impl Denied {
    /// The same with this source denied.
    #[must_use]
    pub fn with(self, source: Source) -> Self {
        match source {
            Source::List => Self { list: true, ..self },
            Source::Listing(_) => Self { listing: true, ..self },
            Source::Get(Question::Health) => Self { health: true, ..self },
            Source::Get(Question::Condition) => Self { condition: true, ..self },
        }
    }
}

impl Source {
    /// The RPC, as metrics and logs name it.
    pub fn method(self) -> &'static str {
        match self {
            Self::List => "ControllerListVolumeHealth",
            Self::Listing(_) => "ListVolumes",
            Self::Get(Question::Health) => "ControllerGetVolumeHealth",
            Self::Get(Question::Condition) => "ControllerGetVolume",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csi::ControllerRpc::{GetVolume, GetVolumeHealth, ListVolumeHealth, ListVolumes, VolumeCondition};
    use crate::csi::{ControllerRpc, PluginService};

    fn source(rpcs: &[ControllerRpc], denied: Denied) -> Result<Source, Idle> {
        Source::of(&Capabilities::offering(&[PluginService::ControllerService], rpcs), denied)
    }

    #[test]
    fn the_source_follows_from_the_capabilities_the_newer_generation_first() {
        let (health, condition) = (Ok(Source::Get(Question::Health)), Ok(Source::Get(Question::Condition)));
        let listing = |question| Ok(Source::Listing(question));
        for (rpcs, expected) in [
            (&[GetVolumeHealth, ListVolumeHealth, VolumeCondition, GetVolume][..], Ok(Source::List)),
            (&[GetVolumeHealth, VolumeCondition, GetVolume], health),
            (&[ListVolumeHealth, VolumeCondition, GetVolume], Err(Idle::ListWithoutGet)),
            (&[VolumeCondition, GetVolume, ListVolumes], listing(Some(Question::Condition))),
            (&[VolumeCondition, ListVolumes], listing(None)),
            (&[VolumeCondition, GetVolume], condition),
            (&[VolumeCondition], Err(Idle::NoCapability)),
            (&[GetVolume, ListVolumes], Err(Idle::NoCapability)),
            (&[], Err(Idle::NoCapability)),
        ] {
            assert_eq!(source(rpcs, Denied::default()), expected, "{rpcs:?}");
        }
    }

    #[test]
    fn a_call_that_is_not_implemented_is_a_capability_that_is_missing() {
        let all = [GetVolumeHealth, ListVolumeHealth, VolumeCondition, ListVolumes, GetVolume];
        let mut denied = Denied::default();
        let mut seen = Vec::new();
        while let Ok(source) = source(&all, denied) {
            seen.push(source.method());
            denied = denied.with(source);
        }
        let expected =
            ["ControllerListVolumeHealth", "ControllerGetVolumeHealth", "ListVolumes", "ControllerGetVolume"];
        assert_eq!(seen, expected);
        let listing_alone = Denied::default().with(Source::Get(Question::Condition));
        assert_eq!(source(&[VolumeCondition, ListVolumes, GetVolume], listing_alone), Ok(Source::Listing(None)));
        let without_get = Denied::default().with(Source::Get(Question::Health));
        assert_eq!(source(&all, without_get), Err(Idle::ListWithoutGet));
    }
}
