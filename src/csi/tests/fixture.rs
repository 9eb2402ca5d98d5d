//! A scripted driver behind a real gRPC server, over in-memory pipes that can be cut.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::io::{AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::codegen::Service;
use tonic::{Code, Request, Response, Status};

use crate::csi::{Csi, CsiOptions, Driver, DriverState};
use crate::process::{BoxedIo, Clock, Dial, Rng, Tasks};
use crate::proto::controller_server::{Controller, ControllerServer};
use crate::proto::identity_server::{Identity, IdentityServer};
use crate::proto::{self, plugin_capability};
use crate::telemetry::Meter;

/// What the driver answers, and what it was asked.
pub(super) struct Script {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) services: Vec<i32>,
    pub(super) rpcs: Vec<i32>,
    /// Answers of the next probes; then ready.
    pub(super) probes: VecDeque<Result<Option<bool>, Status>>,
    /// By RPC: refuses with this.
    pub(super) refuse: BTreeMap<&'static str, (Code, String)>,
    /// By RPC: how long the answer takes.
    pub(super) delay: BTreeMap<&'static str, Duration>,
    pub(super) publish_context: Vec<(String, String)>,
    /// By RPC: answers with these bytes, as they are, instead of one message, and then with this status if any.
    pub(super) raw: BTreeMap<&'static str, (Vec<u8>, Option<Code>)>,
    /// Errors come with this message as it is, and with details that nobody can read.
    pub(super) spoil: Option<&'static [u8]>,
    /// Each call with its metadata.
    pub(super) calls: Vec<(&'static str, tonic::metadata::MetadataMap)>,
}

#[derive(Clone)]
pub(super) struct FakeDriver(Arc<Mutex<Script>>);

impl FakeDriver {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap()
    }

    async fn answer<Q, R>(&self, rpc: &'static str, request: Request<Q>, response: R) -> Result<Response<R>, Status> {
        let (delay, refusal) = {
            let mut script = self.script();
            script.calls.push((rpc, request.metadata().clone()));
            (script.delay.get(rpc).copied(), script.refuse.get(rpc).cloned())
        };
        if let Some(delay) = delay {
            sleep(delay).await;
        }
        match refusal {
            Some((code, message)) => Err(Status::new(code, message)),
            None => Ok(Response::new(response)),
        }
    }
}

#[tonic::async_trait]
impl Identity for FakeDriver {
    async fn get_plugin_info(
        &self,
        request: Request<proto::GetPluginInfoRequest>,
    ) -> Result<Response<proto::GetPluginInfoResponse>, Status> {
        let name = self.script().name.clone();
        let vendor_version = self.script().version.clone();
        let response = proto::GetPluginInfoResponse { name, vendor_version, ..Default::default() };
        self.answer("GetPluginInfo", request, response).await
    }

    async fn get_plugin_capabilities(
        &self,
        request: Request<proto::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<proto::GetPluginCapabilitiesResponse>, Status> {
        let service = |n: &i32| plugin_capability::Type::Service(plugin_capability::Service { r#type: *n });
        let capabilities =
            self.script().services.iter().map(|n| proto::PluginCapability { r#type: Some(service(n)) }).collect();
        self.answer("GetPluginCapabilities", request, proto::GetPluginCapabilitiesResponse { capabilities }).await
    }

    async fn probe(&self, request: Request<proto::ProbeRequest>) -> Result<Response<proto::ProbeResponse>, Status> {
        let next = self.script().probes.pop_front().unwrap_or(Ok(Some(true)));
        let response = self.answer("Probe", request, proto::ProbeResponse::default()).await?;
        next.map(|ready| response.map(|_| proto::ProbeResponse { ready }))
    }
}

macro_rules! controller {
    ($($method:ident = $rpc:literal: $request:ident -> $response:ident;)+) => {
        #[tonic::async_trait]
        impl Controller for FakeDriver {
            async fn controller_publish_volume(
                &self,
                request: Request<proto::ControllerPublishVolumeRequest>,
            ) -> Result<Response<proto::ControllerPublishVolumeResponse>, Status> {
                let publish_context = self.script().publish_context.iter().cloned().collect();
                let response = proto::ControllerPublishVolumeResponse { publish_context };
                self.answer("ControllerPublishVolume", request, response).await
            }

            async fn controller_get_capabilities(
                &self,
                request: Request<proto::ControllerGetCapabilitiesRequest>,
            ) -> Result<Response<proto::ControllerGetCapabilitiesResponse>, Status> {
                use proto::controller_service_capability::{Rpc, Type};
                let capability =
                    |n: &i32| proto::ControllerServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: *n })) };
                let capabilities = self.script().rpcs.iter().map(capability).collect();
                let response = proto::ControllerGetCapabilitiesResponse { capabilities };
                self.answer("ControllerGetCapabilities", request, response).await
            }

            $(
                async fn $method(
                    &self,
                    request: Request<proto::$request>,
                ) -> Result<Response<proto::$response>, Status> {
                    self.answer($rpc, request, proto::$response::default()).await
                }
            )+
        }
    };
}

controller! {
    create_volume = "CreateVolume": CreateVolumeRequest -> CreateVolumeResponse;
    delete_volume = "DeleteVolume": DeleteVolumeRequest -> DeleteVolumeResponse;
    controller_unpublish_volume
        = "ControllerUnpublishVolume": ControllerUnpublishVolumeRequest -> ControllerUnpublishVolumeResponse;
    validate_volume_capabilities
        = "ValidateVolumeCapabilities": ValidateVolumeCapabilitiesRequest -> ValidateVolumeCapabilitiesResponse;
    list_volumes = "ListVolumes": ListVolumesRequest -> ListVolumesResponse;
    get_capacity = "GetCapacity": GetCapacityRequest -> GetCapacityResponse;
    create_snapshot = "CreateSnapshot": CreateSnapshotRequest -> CreateSnapshotResponse;
    delete_snapshot = "DeleteSnapshot": DeleteSnapshotRequest -> DeleteSnapshotResponse;
    list_snapshots = "ListSnapshots": ListSnapshotsRequest -> ListSnapshotsResponse;
    get_snapshot = "GetSnapshot": GetSnapshotRequest -> GetSnapshotResponse;
    controller_expand_volume
        = "ControllerExpandVolume": ControllerExpandVolumeRequest -> ControllerExpandVolumeResponse;
    controller_get_volume = "ControllerGetVolume": ControllerGetVolumeRequest -> ControllerGetVolumeResponse;
    controller_list_volume_health
        = "ControllerListVolumeHealth": ControllerListVolumeHealthRequest -> ControllerListVolumeHealthResponse;
    controller_get_volume_health
        = "ControllerGetVolumeHealth": ControllerGetVolumeHealthRequest -> ControllerGetVolumeHealthResponse;
    controller_modify_volume
        = "ControllerModifyVolume": ControllerModifyVolumeRequest -> ControllerModifyVolumeResponse;
}

/// Both services behind one server.
#[derive(Clone)]
struct Both {
    driver: FakeDriver,
    identity: IdentityServer<FakeDriver>,
    controller: ControllerServer<FakeDriver>,
}

impl Service<http::Request<tonic::body::Body>> for Both {
    type Response = http::Response<tonic::body::Body>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let rpc = request.uri().path().rsplit('/').next().unwrap_or_default();
        let (raw, message) = {
            let script = self.driver.script();
            (script.raw.get(rpc).cloned(), script.spoil)
        };
        if let Some((bytes, status)) = raw {
            let status = status.map(|code| {
                let mut trailers = http::HeaderMap::new();
                trailers.insert("grpc-status", (code as i32).into());
                if let Some(message) = message {
                    trailers.insert("grpc-message", http::HeaderValue::from_bytes(message).unwrap());
                }
                Ok::<_, io::Error>(hyper::body::Frame::trailers(trailers))
            });
            let frames = std::iter::once(Ok(hyper::body::Frame::data(bytes.into()))).chain(status);
            let body = tonic::body::Body::new(http_body_util::StreamBody::new(tokio_stream::iter(frames)));
            let head = http::Response::builder().header("content-type", "application/grpc");
            return std::future::ready(Ok(head.body(body).unwrap())).boxed();
        }
        if request.uri().path().starts_with("/csi.v1.Identity/") {
            self.identity.call(request).boxed()
        } else {
            let answer = self.controller.call(request);
            async move {
                let mut answer = answer.await?;
                if let Some(message) = message
                    && answer.headers().contains_key("grpc-status")
                {
                    answer.headers_mut().insert("grpc-message", http::HeaderValue::from_bytes(message).unwrap());
                    answer.headers_mut().insert("grpc-status-details-bin", http::HeaderValue::from_static("!!"));
                }
                Ok(answer)
            }
            .boxed()
        }
    }
}

/// The socket, with or without a driver behind it, and the daemon's service that dials it.
pub(super) struct Bench {
    pub(super) csi: Csi,
    pub(super) meter: Meter,
    driver: FakeDriver,
    socket: Arc<Mutex<Option<mpsc::UnboundedSender<DuplexStream>>>>,
    dials: Arc<Mutex<usize>>,
    /// The driver's process: ending it cuts every pipe.
    process: Option<Tasks>,
    drain: CancellationToken,
    /// Processes that have been told to stop and finish what they do.
    draining: Vec<Tasks>,
    daemon: Tasks,
}

impl Bench {
    /// Nobody listens yet.
    pub(super) fn new(options: CsiOptions) -> Self {
        let socket: Arc<Mutex<Option<mpsc::UnboundedSender<DuplexStream>>>> = Arc::default();
        let dials: Arc<Mutex<usize>> = Arc::default();
        let (listener, count) = (Arc::clone(&socket), Arc::clone(&dials));
        let dial = Dial::new(move || {
            *count.lock().unwrap() += 1;
            let listener = listener.lock().unwrap().clone();
            async move {
                let (ours, theirs) = tokio::io::duplex(64 << 10);
                match listener.map(|l| l.send(theirs)) {
                    Some(Ok(())) => Ok(Box::new(ours) as BoxedIo),
                    _ => Err(io::Error::new(io::ErrorKind::NotFound, "no such socket")),
                }
            }
        });
        let meter = Meter::new();
        let csi = Csi::new(dial, options, meter.clone(), Clock::system(), Rng::seeded(1));
        let driver = FakeDriver(Arc::new(Mutex::new(Script {
            name: "demo.csi.example.com".into(),
            version: "1.0".into(),
            services: vec![1],
            rpcs: vec![2],
            probes: VecDeque::new(),
            refuse: BTreeMap::new(),
            delay: BTreeMap::new(),
            publish_context: Vec::new(),
            raw: BTreeMap::new(),
            spoil: None,
            calls: Vec::new(),
        })));
        Self {
            csi,
            meter,
            driver,
            socket,
            dials,
            process: None,
            drain: CancellationToken::new(),
            draining: Vec::new(),
            daemon: Tasks::new("daemon").0,
        }
    }

    /// A driver that listens and a daemon that runs.
    pub(super) fn started() -> Self {
        let mut bench = Self::new(CsiOptions::default());
        bench.start_driver();
        bench.run();
        bench
    }

    pub(super) fn run(&self) {
        self.daemon.spawn("csi", self.csi.clone().run());
    }

    pub(super) fn script(&self) -> MutexGuard<'_, Script> {
        self.driver.script()
    }

    pub(super) fn dials(&self) -> usize {
        *self.dials.lock().unwrap()
    }

    /// How often an RPC was called.
    pub(super) fn calls(&self, rpc: &str) -> usize {
        self.script().calls.iter().filter(|(name, _)| *name == rpc).count()
    }

    pub(super) fn start_driver(&mut self) {
        let (connect, mut connections) = mpsc::unbounded_channel::<DuplexStream>();
        let (serve, served) = mpsc::unbounded_channel();
        let process = Tasks::new("driver").0;
        let wires = process.clone();
        process.spawn("accept", async move {
            while let Some(mut theirs) = connections.recv().await {
                let (mut near, far) = tokio::io::duplex(64 << 10);
                let _ = serve.send(far);
                wires.spawn("wire", async move {
                    let _ = tokio::io::copy_bidirectional(&mut theirs, &mut near).await;
                });
            }
        });
        let both = Both {
            driver: self.driver.clone(),
            identity: IdentityServer::new(self.driver.clone()),
            controller: ControllerServer::new(self.driver.clone()),
        };
        let incoming = UnboundedReceiverStream::new(served).map(Ok::<_, io::Error>);
        self.drain = CancellationToken::new();
        let stop = self.drain.clone().cancelled_owned();
        let grpc = tonic::transport::Server::builder().serve_with_incoming_shutdown(both, incoming, stop);
        process.spawn_fallible("grpc", grpc);
        *self.socket.lock().unwrap() = Some(connect);
        self.process = Some(process);
    }

    /// Kills the driver: its pipes break and nobody listens.
    pub(super) fn kill_driver(&mut self) {
        *self.socket.lock().unwrap() = None;
        if let Some(process) = self.process.take() {
            process.abort_all();
        }
    }

    /// Stops it in an orderly way: it takes no more calls and finishes those that it has.
    pub(super) fn drain_driver(&mut self) {
        *self.socket.lock().unwrap() = None;
        self.drain.cancel();
        self.draining.extend(self.process.take());
    }

    /// Something else listens: it answers with these bytes and hangs up.
    pub(super) fn start_stranger(&mut self, answer: &'static [u8]) {
        let (connect, mut connections) = mpsc::unbounded_channel::<DuplexStream>();
        let process = Tasks::new("stranger").0;
        process.spawn("accept", async move {
            while let Some(mut theirs) = connections.recv().await {
                let _ = theirs.write_all(answer).await;
            }
        });
        *self.socket.lock().unwrap() = Some(connect);
        self.process = Some(process);
    }

    /// Kills it and starts it again before anybody can look.
    pub(super) fn restart_driver(&mut self) {
        self.kill_driver();
        self.start_driver();
    }

    pub(super) async fn ready(&self) -> Arc<Driver> {
        let state = self.until(|state| matches!(state, DriverState::Ready(_))).await;
        Arc::clone(state.ready().unwrap())
    }

    pub(super) async fn until(&self, wanted: impl FnMut(&DriverState) -> bool) -> DriverState {
        let mut states = self.csi.state();
        let state = tokio::time::timeout(Duration::from_secs(60), states.wait_for(wanted)).await;
        state.expect("the state never came").unwrap().clone()
    }

    pub(super) async fn error_containing(&self, text: &str) -> String {
        let state = self.until(|state| state.last_error().is_some_and(|e| e.contains(text))).await;
        state.last_error().unwrap().to_owned()
    }
}
