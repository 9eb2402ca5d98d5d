//! The segments of volumes, and their free capacity. Pure.
//!
//! A driver without pools has one, everywhere or in each of its segments alike. With pools, each is a place with a size of its
//! own, and may be kept for volumes with certain parameters.

use tonic::Code;

use super::profile::{Pool, Profile};
use super::refusal::Refusal;
use super::state::State;
use super::validate;
use super::volumes::{Segments, lies_in};
use base::proto::controller_service_capability::rpc::Type as Rpc;
use base::proto::{CreateVolumeRequest, GetCapacityRequest, GetCapacityResponse, Topology};

impl State {
    /// `GetCapacity`. Of several pools that fit, what is free in all of them together.
    pub fn get_capacity(
        &self,
        profile: &Profile,
        request: &GetCapacityRequest,
    ) -> Result<GetCapacityResponse, Refusal> {
        profile.require(Rpc::GetCapacity)?;
        request.volume_capabilities.iter().try_for_each(|c| validate::capability(profile, Some(c)))?;
        let topology = request.accessible_topology.as_ref();
        if topology.is_some() && !profile.is_topology_aware() {
            return Err(Refusal::invalid("accessible_topology is set, but the driver has no topology"));
        }
        let parameters = validate::sorted(&request.parameters);
        let (available, largest) = if profile.pools.is_empty() {
            let here = topology.is_none_or(|topology| profile.segments.iter().any(|it| lies_in(it, topology)));
            (if here { self.room(profile, None) } else { 0 }, profile.max_volume_size)
        } else {
            let here = |pool: &Pool| topology.is_none_or(|topology| lies_in(&pool.segments, topology));
            let fitting =
                || profile.pools.iter().enumerate().filter(|(_, pool)| here(pool) && pool.serves(&parameters));
            let free = fitting().fold(0_i64, |sum, (i, _)| sum.saturating_add(self.room(profile, Some(i))));
            // The scheduler uses this value alone if it is there, so it is never more than the free capacity.
            let largest = |(i, pool): (usize, &Pool)| pool.largest(profile).min(self.room(profile, Some(i)));
            (free, fitting().map(largest).max().unwrap_or_default())
        };
        let tell = |bytes: i64| profile.tells_volume_sizes.then_some(bytes);
        Ok(GetCapacityResponse {
            available_capacity: available,
            maximum_volume_size: tell(largest),
            minimum_volume_size: tell(profile.min_volume_size),
        })
    }

    /// The free capacity of a pool, or of the only one of a driver without pools.
    pub(super) fn room(&self, profile: &Profile, pool: Option<usize>) -> i64 {
        let size = match pool {
            None => profile.capacity,
            Some(i) => profile.pools.get(i).map_or(0, |pool| pool.capacity),
        };
        let used = self.volumes.values().filter(|it| pool.is_none() || it.pool == pool);
        size.saturating_sub(used.fold(0_i64, |sum, volume| sum.saturating_add(volume.capacity))).max(0)
    }

    /// The free capacity of this volume's pool.
    pub(super) fn room_beside(&self, profile: &Profile, volume: &str) -> i64 {
        self.room(profile, self.volumes.get(volume).and_then(|volume| volume.pool))
    }

    /// Where a new volume goes: the first preferred place that has room, then the first requisite one.
    pub(super) fn place(
        &self,
        profile: &Profile,
        request: &CreateVolumeRequest,
        capacity: i64,
    ) -> Result<(Option<usize>, Segments), Refusal> {
        let full = || Refusal::new(Code::ResourceExhausted, "the pool is full");
        let nowhere = || Refusal::new(Code::ResourceExhausted, "no storage in the requested topology");
        let wanted: Vec<&Topology> = request
            .accessibility_requirements
            .iter()
            .flat_map(|wanted| wanted.preferred.iter().chain(&wanted.requisite))
            .collect();
        if profile.pools.is_empty() {
            let segments = place_in(&profile.segments, &wanted, profile.is_topology_aware()).ok_or_else(nowhere)?;
            return if capacity > self.room(profile, None) { Err(full()) } else { Ok((None, segments)) };
        }
        let parameters = validate::sorted(&request.parameters);
        let anywhere = Topology::default();
        let wanted = if wanted.is_empty() { vec![&anywhere] } else { wanted };
        let fitting = wanted.iter().flat_map(|topology| {
            let fits = |pool: &Pool| lies_in(&pool.segments, topology) && pool.serves(&parameters);
            profile.pools.iter().enumerate().filter(move |(_, pool)| fits(pool))
        });
        let fitting: Vec<(usize, &Pool)> = fitting.collect();
        if fitting.is_empty() {
            return Err(nowhere());
        }
        if fitting.iter().all(|(_, pool)| capacity > pool.largest(profile)) {
            return Err(Refusal::out_of_range(format!("no pool has volumes of {capacity} bytes")));
        }
        let roomy = fitting
            .into_iter()
            .find(|(i, pool)| capacity <= pool.largest(profile) && capacity <= self.room(profile, Some(*i)));
        roomy.map(|(i, pool)| (Some(i), pool.segments.clone())).ok_or_else(full)
    }
}

impl Pool {
    fn serves(&self, parameters: &Segments) -> bool {
        self.parameters.iter().all(|(key, value)| parameters.get(key) == Some(value))
    }

    fn largest(&self, profile: &Profile) -> i64 {
        if self.max_volume_size == 0 { profile.max_volume_size } else { self.max_volume_size }
    }
}

/// The first wanted place that exists; the first of all if none is wanted.
fn place_in(places: &[Segments], wanted: &[&Topology], is_topology_aware: bool) -> Option<Segments> {
    if !is_topology_aware {
        return Some(Segments::new());
    }
    if wanted.is_empty() {
        return Some(places.first().cloned().unwrap_or_default());
    }
    wanted.iter().find_map(|topology| places.iter().find(|segments| lies_in(segments, topology)).cloned())
}

#[cfg(test)]
mod tests {
    use super::super::profile::GIB;
    use super::super::state_tests::create;
    use super::*;
    use base::proto::TopologyRequirement;

    fn zoned() -> Profile {
        let fast = Pool { max_volume_size: 2 * GIB, ..Pool::at([("zone", "z1")], 3 * GIB) };
        let tape =
            Pool { parameters: [("type".to_owned(), "tape".to_owned())].into(), ..Pool::at([("zone", "z3")], GIB) };
        Profile::default().in_pools([fast, Pool::at([("zone", "z2")], 10 * GIB), tape])
    }

    fn zone(value: &str) -> Topology {
        Topology { segments: [("zone".to_owned(), value.to_owned())].into() }
    }

    fn request(name: &str, gib: i64, preferred: &[&str], requisite: &[&str]) -> CreateVolumeRequest {
        let topologies = |zones: &[&str]| zones.iter().map(|it| zone(it)).collect();
        let wanted = TopologyRequirement { requisite: topologies(requisite), preferred: topologies(preferred) };
        CreateVolumeRequest { accessibility_requirements: Some(wanted), ..create(name, gib) }
    }

    fn made(state: &mut State, request: &CreateVolumeRequest) -> Result<String, Code> {
        let answer = state.create_volume(&zoned(), request).map_err(|refusal| refusal.code)?;
        let topologies = answer.volume.unwrap().accessible_topology;
        Ok(topologies[0].segments["zone"].clone())
    }

    fn free(state: &State, topology: Option<&str>, parameters: &[(&str, &str)]) -> (i64, Option<i64>) {
        let parameters = parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let accessible_topology = topology.map(zone);
        let request = GetCapacityRequest { accessible_topology, parameters, ..GetCapacityRequest::default() };
        let answer = state.get_capacity(&zoned(), &request).unwrap();
        (answer.available_capacity, answer.maximum_volume_size)
    }

    #[test]
    fn a_volume_goes_to_the_first_preferred_place_with_room() {
        let mut state = State::default();
        assert_eq!(made(&mut state, &request("a", 1, &["z2"], &["z1", "z2"])), Ok("z2".to_owned()));
        assert_eq!(made(&mut state, &request("b", 2, &["z1"], &["z1", "z2"])), Ok("z1".to_owned()));
        // One gibibyte is left in the first zone.
        assert_eq!(made(&mut state, &request("c", 2, &["z1"], &["z1", "z2"])), Ok("z2".to_owned()));
        assert_eq!(made(&mut state, &request("d", 2, &[], &["z1"])), Err(Code::ResourceExhausted));
        assert_eq!(made(&mut state, &request("e", 3, &[], &["z1"])), Err(Code::OutOfRange));
        assert_eq!(made(&mut state, &request("f", 1, &[], &["z9"])), Err(Code::ResourceExhausted));
        assert_eq!(made(&mut state, &request("g", 1, &[], &["z3"])), Err(Code::ResourceExhausted));
        assert_eq!(made(&mut state, &create("h", 1)), Ok("z1".to_owned()));
    }

    #[test]
    fn an_existing_volume_elsewhere_is_incompatible() {
        let mut state = State::default();
        assert_eq!(made(&mut state, &request("a", 1, &[], &["z1"])), Ok("z1".to_owned()));
        assert_eq!(made(&mut state, &request("a", 1, &[], &["z1", "z2"])), Ok("z1".to_owned()));
        assert_eq!(made(&mut state, &request("a", 1, &[], &["z2"])), Err(Code::AlreadyExists));
    }

    #[test]
    fn capacity_is_told_by_place_and_by_parameters() {
        let mut state = State::default();
        assert_eq!(free(&state, Some("z1"), &[]), (3 * GIB, Some(2 * GIB)));
        assert_eq!(free(&state, None, &[]).0, 13 * GIB);
        assert_eq!(free(&state, None, &[("type", "tape")]).0, 14 * GIB);
        assert_eq!(free(&state, Some("z9"), &[]), (0, Some(0)));
        made(&mut state, &request("a", 1, &[], &["z1"])).unwrap();
        assert_eq!(free(&state, Some("z1"), &[]), (2 * GIB, Some(2 * GIB)));
        assert_eq!(free(&state, Some("z2"), &[]), (10 * GIB, Some(10 * GIB)));
        made(&mut state, &request("b", 1, &[], &["z1"])).unwrap();
        assert_eq!(free(&state, Some("z1"), &[]), (GIB, Some(GIB)), "what does not fit is not the largest");
    }
}
