//! What is asked and written before a claim is a node's own, where each node has a daemon: room, other nodes, and whose it is.

use tracing::{info, warn};

use crate::cluster::{Node, ObjectName};
use crate::proto::GetCapacityRequest;

use super::contention::{Holder, has_room};
use crate::roles::provisioner::claims::attempt::Happened;
use crate::roles::provisioner::claims::decide::Ownership;
use crate::roles::provisioner::claims::error::{READ_NODE, Stop};
use crate::roles::provisioner::claims::observe::{Look, Observed};
use crate::roles::provisioner::claims::perform::{remove_owner, write_owner};
use crate::roles::provisioner::claims::transition::Change;
use crate::roles::provisioner::topology::Segment;

impl Look<'_> {
    /// Asks this node's driver whether it has room for the claim. One that can't say is not kept from trying.
    pub(in crate::roles::provisioner) async fn ask_capacity(&self, now: &Observed) -> Result<Happened, Stop> {
        let Some(request) = self.known().request() else { return Ok(Happened::Nothing) };
        let cx = self.cx;
        let client = cx.driver.use_now()?;
        let places = request.requirement.as_ref().map_or(&[][..], |requirement| &requirement.requisite);
        let places: Vec<Option<&Segment>> =
            if places.is_empty() { vec![None] } else { places.iter().map(Some).collect() };
        let mut answers = Vec::new();
        for place in places {
            let asked = GetCapacityRequest {
                volume_capabilities: request.capabilities.clone(),
                parameters: request.parameters.clone().into_iter().collect(),
                accessible_topology: place.map(Segment::to_proto),
            };
            match cx.term.during(client.get_capacity(asked)).await? {
                Ok(answer) => answers.push(answer),
                Err(error) => {
                    warn!(error = %error, "cannot read the capacity: trying without it");
                    return Ok(Happened::Room(true));
                }
            }
        }
        let fits = has_room(&answers, request.required_bytes);
        if !fits {
            return Err(Stop::Later(cx.scope.no_room(&now.claim.key, cx.clock.now())));
        }
        Ok(Happened::Room(true))
    }

    /// Asks the API whether the node that has the claim still exists.
    pub(in crate::roles::provisioner) async fn ask_for_holder(&self, node: String) -> Result<Happened, Stop> {
        let api = self.cx.api.use_now()?;
        let found: Option<Node> =
            api.get_opt(&ObjectName::cluster(&node)).await.map_err(|error| READ_NODE.failed(error))?;
        Ok(Happened::Holder(node, if found.is_some() { Holder::There } else { Holder::Gone }))
    }

    /// Begins the wait after which the claim is looked at again.
    pub(in crate::roles::provisioner) fn begin_wait(&self, now: &Observed) -> Happened {
        self.cx.scope.begin_wait(&now.claim, self.cx.clock.now());
        Happened::WaitBegun
    }

    /// The claim is this node's: no wait for another matters any more.
    pub(in crate::roles::provisioner) fn forget_race(&self, now: &Observed) {
        if now.ownership == Ownership::Here {
            self.cx.scope.forget(&now.claim.key);
        }
    }

    /// Writes this node's name on the claim. One that another node has taken meanwhile is left to it.
    pub(in crate::roles::provisioner) async fn become_owner(&self, now: &Observed) -> Result<Happened, Stop> {
        let taken = write_owner(self.cx, &now.claim).await;
        if let Err(Stop::Failed(error)) = &taken
            && error.is_of_an_old_view()
        {
            self.cx.scope.lost(&now.claim.key);
        }
        taken?;
        // Where the room was looked for is not where the volume is to be, once our node is selected.
        Ok(Change::Replanned.into())
    }

    /// Removes from the claim what a deleted node has left there.
    pub(in crate::roles::provisioner) async fn release_ownership(&self, now: &Observed) -> Result<Happened, Stop> {
        remove_owner(self.cx, &now.claim).await?;
        let node = now.claim.holder().unwrap_or_default();
        info!(node, begun = now.claim.guarded, "the claim's node is gone: removed it from the claim");
        self.tell_resumed("abandoned");
        Ok(Change::LetGo.into())
    }
}
