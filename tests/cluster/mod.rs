//! What only a real Kubernetes control plane can show. `just cluster` plays it, and the scenarios of `tests/it` and the list of
//! `tests/conformance` on such a one.
//!
//! ```text
//! build.sh        builds etcd, kube-apiserver & co. from the Go module proxy, once
//! programs, tls,  a control plane of processes on loopback; `shared` are those that tests have in common
//! control_plane
//! accounts        who may do what on it
//! wire            a wire to the server that counts, and can be cut
//! shell           a user's shell, and the commands that `migrate` prints for it
//! kinds           snapshots and grants, which a cluster has only if somebody installs them
//!
//! assets          what build.sh builds where there is an etcd and a kube-apiserver already
//! attach_detach   the attach/detach controller where kube-controller-manager's is off, and beside it
//! versions        what runs is what go.mod and the documents name
//! connections     how the daemon's clients use their connections to a server that speaks HTTP/2
//! credentials     the control plane gets another authority while a daemon runs, and a kubeconfig names a namespace
//! kubectl         the real kubectl, as the administrator
//! isolation       the control plane is reached from nowhere else, not without TLS, and shares nothing with one beside it
//! claim_rights    what needs each of the provisioner's rights
//! rights          those rights, one by one: each role alone has enough, and each of them is missed
//! replicas        the binary as two processes: the leader is told to stop, or killed
//! killed          claims by the hundred, and five leaders that die while they provision them
//! two_versions    an upgrade and its way back in the middle of claims, attachments and deletions; `older` names the earlier version
//! zones           a StatefulSet across three zones, of which one has no room
//! sidecar         the Go sidecars as our daemons' neighbours
//! provisioners    beside csi-provisioner: the same requests, the same volumes, and each other's
//! topologies      the same of the topology, on nodes with different sets of keys
//! resizers        beside csi-resizer: each takes over from the other in the middle
//! snapshotters    beside csi-snapshotter and the real snapshot-controller: each takes over from the other
//! handovers       the same at each moment in the life of a snapshot and of a group
//! conversion      snapshots that are stored in a version which nobody can convert
//! group_versions  groups of snapshots on a server that has them in one version alone
//! room            beside csi-provisioner: the same capacity objects
//! peers           beside csi-attacher, and under csi-sanity
//! mock_driver     a driver that others have written, in Go, through the sandbox's demo
//! migration       `migrate`: its files, on the server and by kubectl, and the daemon that they make
//! pods, moving    `migrate`: its steps, word by word, there and back
//! parity          the metrics of both Go sidecars, scraped, beside ours
//! ```

mod assets;
mod attach_detach;
mod claim_rights;
mod connections;
mod conversion;
mod credentials;
mod group_versions;
mod handovers;
mod isolation;
mod killed;
mod kubectl;
mod migration;
mod mock_driver;
mod moving;
mod parity;
mod peers;
mod pods;
mod provisioners;
mod replicas;
mod resizers;
mod rights;
mod room;
mod sidecar;
mod snapshotters;
mod topologies;
mod two_versions;
mod versions;
mod zones;
