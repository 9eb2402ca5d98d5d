//! The health of volumes, as drivers of CSI 1.13 tell it, and as those before told it. Pure.

use super::faults::Lie;
use super::lies::Answer;
use super::profile::Profile;
use super::refusal::Refusal;
use super::state::{State, Volume};
use super::validate;
use base::proto::controller_service_capability::rpc::Type as Rpc;
use base::proto::volume_health::VolumeHealthEntry;
use base::proto::{
    ControllerGetVolumeHealthRequest, ControllerGetVolumeHealthResponse, ControllerListVolumeHealthRequest,
    ControllerListVolumeHealthResponse, VolumeCondition, VolumeHealth,
};

impl State {
    /// Changes what is wrong with a volume, as wear and repair do. Returns whether the volume exists.
    pub fn set_health<'a>(&mut self, id: &str, wrong: impl IntoIterator<Item = (i32, &'a str, &'a str)>) -> bool {
        let Some(volume) = self.volumes.get_mut(id) else { return false };
        let entry = |(status, reason, message): (i32, &str, &str)| VolumeHealthEntry {
            status,
            reason: reason.to_owned(),
            message: message.to_owned(),
        };
        volume.health = wrong.into_iter().map(entry).collect();
        true
    }

    /// `ControllerListVolumeHealth`: what is healthy is left out.
    pub fn list_volume_health(
        &self,
        profile: &Profile,
        request: &ControllerListVolumeHealthRequest,
    ) -> Result<ControllerListVolumeHealthResponse, Refusal> {
        profile.require(Rpc::ListVolumeHealth)?;
        let wrong = self.volumes.iter().filter(|(_, volume)| !volume.health.is_empty());
        let items = wrong.map(|(id, volume)| (id, volume.health(id)));
        let (entries, next_token) =
            validate::page(items, &request.starting_token, request.max_entries, profile.page_limit)?;
        Ok(ControllerListVolumeHealthResponse { entries, next_token })
    }

    /// `ControllerGetVolumeHealth`.
    pub fn get_volume_health(
        &self,
        profile: &Profile,
        request: &ControllerGetVolumeHealthRequest,
    ) -> Result<ControllerGetVolumeHealthResponse, Refusal> {
        profile.require(Rpc::GetVolumeHealth)?;
        validate::required("volume_id", &request.volume_id)?;
        let health = self.existing(&request.volume_id)?.health(&request.volume_id);
        Ok(ControllerGetVolumeHealthResponse { volume_health: Some(health) })
    }
}

impl Volume {
    fn health(&self, id: &str) -> VolumeHealth {
        VolumeHealth { volume_id: id.to_owned(), health_statuses: self.health.clone() }
    }

    /// The same in the words of a driver before CSI 1.13.
    pub(super) fn condition(&self) -> VolumeCondition {
        let wrong: Vec<&str> = self.health.iter().map(|entry| entry.message.as_str()).collect();
        let message = if wrong.is_empty() { "the volume is fine".to_owned() } else { wrong.join(", ") };
        VolumeCondition { abnormal: !wrong.is_empty(), message }
    }
}

impl Answer for ControllerListVolumeHealthResponse {
    fn distort(&mut self, lie: &Lie) {
        match lie {
            Lie::OmitVolumes(omitted) => self.entries.retain(|entry| !omitted.contains(&entry.volume_id)),
            Lie::DuplicateEntries => self.entries.extend(self.entries.clone()),
            Lie::TokenLoop => self.next_token = validate::first_page_token(),
            _ => {}
        }
    }
}

impl Answer for ControllerGetVolumeHealthResponse {
    fn distort(&mut self, lie: &Lie) {
        match (lie, &mut self.volume_health) {
            (Lie::NoVolume, health) => *health = None,
            (Lie::HealthOf(id), Some(health)) => health.volume_id.clone_from(id),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;
    use base::proto::ControllerGetVolumeRequest;

    fn ill() -> State {
        let mut state = State::default();
        for id in ["a", "b", "c"] {
            state.seed(id);
        }
        assert!(state.set_health("a", [(1, "DiskLost", "one disk of two"), (9, "New", "")]));
        assert!(state.set_health("c", [(3, "Torn", "block 7")]) && !state.set_health("none", []));
        state
    }

    fn get(state: &State, profile: &Profile, id: &str) -> Result<Vec<VolumeHealthEntry>, Code> {
        let request = ControllerGetVolumeHealthRequest {
            volume_id: id.to_owned(),
            ..ControllerGetVolumeHealthRequest::default()
        };
        let answer = state.get_volume_health(profile, &request).map_err(|refusal| refusal.code)?;
        Ok(answer.volume_health.unwrap().health_statuses)
    }

    #[test]
    fn nc2_a_driver_of_1_13_lists_what_is_not_healthy_page_by_page_and_is_asked_for_one_volume() {
        let (state, profile) = (ill(), Profile::default().with_volume_health());
        let list = |starting_token: &str| {
            let starting_token = starting_token.to_owned();
            let request = ControllerListVolumeHealthRequest {
                max_entries: 1,
                starting_token,
                ..ControllerListVolumeHealthRequest::default()
            };
            state.list_volume_health(&profile, &request)
        };
        let first = list("").unwrap();
        let second = list(&first.next_token).unwrap();
        let ids = [&first, &second].map(|page| page.entries.iter().map(|it| it.volume_id.as_str()).collect::<Vec<_>>());
        assert_eq!((ids, second.next_token.as_str()), ([vec!["a"], vec!["c"]], ""));
        assert_eq!(list("7").unwrap_err().code, Code::Aborted, "the token is not one of the driver's");
        assert_eq!(get(&state, &profile, "a").unwrap().len(), 2);
        assert_eq!(get(&state, &profile, "b").unwrap(), []);
        assert_eq!(get(&state, &profile, "none").unwrap_err(), Code::NotFound);
        assert_eq!(get(&state, &Profile::default(), "a").unwrap_err(), Code::Unimplemented);
    }

    #[test]
    fn nc1_a_driver_of_1_12_tells_the_same_as_a_condition() {
        let (mut state, profile) = (ill(), Profile::default());
        let told = |state: &State| {
            let request = ControllerGetVolumeRequest { volume_id: "c".to_owned() };
            state.get_volume(&profile, &request).unwrap().status.unwrap().volume_condition.unwrap()
        };
        assert_eq!(told(&state), VolumeCondition { abnormal: true, message: "block 7".to_owned() });
        state.set_health("c", []);
        assert!(!told(&state).abnormal);
    }

    #[test]
    fn answers_about_health_lie_as_told() {
        let (state, profile) = (ill(), Profile::default().with_volume_health());
        let mut list = state.list_volume_health(&profile, &ControllerListVolumeHealthRequest::default()).unwrap();
        list.distort(&Lie::DuplicateEntries);
        assert_eq!(list.entries.len(), 4);
        list.distort(&Lie::OmitVolumes(["a".to_owned()].into()));
        list.distort(&Lie::TokenLoop);
        assert!(list.entries.len() == 2 && !list.next_token.is_empty());
        let request = ControllerGetVolumeHealthRequest {
            volume_id: "a".to_owned(),
            ..ControllerGetVolumeHealthRequest::default()
        };
        let mut get = state.get_volume_health(&profile, &request).unwrap();
        get.distort(&Lie::HealthOf("b".to_owned()));
        assert_eq!(get.volume_health.as_ref().unwrap().volume_id, "b");
        get.distort(&Lie::NoVolume);
        assert_eq!(get.volume_health, None);
    }
}
