//! What is asked and written before a claim is a node's own, where each node has a daemon: room, other nodes, and whose it is.

use tracing::{info, warn};

use crate::cluster::{Node, ObjectName};
use crate::proto::GetCapacityRequest;

use super::contention::{Holder, has_room};
use crate::roles::provisioner::claims::error::READ_NODE;
use crate::roles::provisioner::claims::observe::Observed;
use crate::roles::provisioner::claims::perform::{remove_owner, write_owner};
use crate::roles::provisioner::claims::reconcile::{Attempt, Stop};
use crate::roles::provisioner::topology::Segment;

impl Attempt<'_> {
    /// Asks this node's driver whether it has room for the claim. One that can't say is not kept from trying.
    pub(in crate::roles::provisioner) async fn ask_capacity(&mut self) -> Result<(), Stop> {
        let Some(request) = self.state.request.clone() else { return Ok(()) };
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
                    warn!(error = %error, "cannot see how much room there is: trying without");
                    self.asked.fits = Some(true);
                    return Ok(());
                }
            }
        }
        let fits = has_room(&answers, request.required_bytes);
        self.asked.fits = Some(fits);
        if !fits {
            return Err(Stop::Later(cx.scope.no_room(&self.state.claim.key, cx.clock.now())));
        }
        Ok(())
    }

    /// Asks the API whether the node that has the claim still exists.
    pub(in crate::roles::provisioner) async fn ask_for_holder(&mut self, node: String) -> Result<(), Stop> {
        let api = self.cx.api.use_now()?;
        let found: Option<Node> =
            api.get_opt(&ObjectName::cluster(&node)).await.map_err(|error| READ_NODE.failed(error))?;
        self.asked.holder = Some((node, if found.is_some() { Holder::There } else { Holder::Gone }));
        Ok(())
    }

    /// Writes this node's name on the claim. One that another node has taken meanwhile is left to it.
    pub(in crate::roles::provisioner) async fn become_owner(&mut self, now: &Observed) -> Result<(), Stop> {
        let taken = write_owner(self.cx, &now.claim).await;
        // Where the room was looked for is not where the volume is to be, once our node is selected.
        self.state.unpin();
        if let Err(Stop::Failed(error)) = &taken
            && error.is_of_an_old_view()
        {
            self.cx.scope.lost(&now.claim.key);
        }
        self.refresh_after(taken, now).await
    }

    /// Takes off the claim what a node that is gone has left there.
    pub(in crate::roles::provisioner) async fn release_ownership(&mut self, now: &Observed) -> Result<(), Stop> {
        let freed = remove_owner(self.cx, &now.claim).await;
        if freed.is_ok() {
            let node = now.claim.holder().unwrap_or_default();
            info!(node, begun = now.claim.guarded, "the claim's node is gone: took it off the claim");
            self.tell_resumed("abandoned");
            self.let_go();
        }
        self.refresh_after(freed, now).await
    }

    /// What another node's daemon had begun is over.
    pub(in crate::roles::provisioner) fn let_go(&mut self) {
        self.state.let_go();
        self.note();
    }
}
