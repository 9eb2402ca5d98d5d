//! A proxy to the API server that can cut connections: all current connections end at once, and new ones work.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use csi_control_plane::process::Tasks;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The wire. TLS goes through it as it is.
pub(crate) struct Wire {
    pub(crate) address: SocketAddr,
    cuts: watch::Sender<u32>,
    made: Arc<AtomicUsize>,
    _tasks: Tasks,
}

impl Wire {
    /// A wire to `server`.
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (cuts, watched) = watch::channel(0);
        let (tasks, _) = Tasks::new("wire");
        let (connections, made) = (tasks.clone(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&made);
        tasks.spawn("accept", async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let mut cut = watched.clone();
                cut.mark_unchanged();
                counted.fetch_add(1, Ordering::Relaxed);
                connections.spawn("connection", async move {
                    let Ok(mut far) = TcpStream::connect(server).await else { return };
                    let _ = (near.set_nodelay(true), far.set_nodelay(true));
                    tokio::select! {
                        // Whichever side ends it, there is nothing to tell.
                        _ = copy_bidirectional(&mut near, &mut far) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Self { address, cuts, made, _tasks: tasks }
    }

    /// How many connections were made through it.
    pub(crate) fn connections(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    /// Cuts every connection.
    pub(crate) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}
