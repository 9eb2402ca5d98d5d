//! A conversation with an API server, written down so that two servers can be compared word for word.
//!
//! A case names its objects `CASE-something`. The value of `CASE` is new each time, so that cases share a server. In
//! the transcript it is `CASE` again. Values that differ between servers (uids, versions, times, tokens) are numbered
//! in the order in which they appear: the same number is the same value.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::transcript::Transcript;

/// The longest that anything may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause between two looks at something that cannot be awaited.
const LOOK: Duration = Duration::from_millis(20);

/// Something that a test has done to a server from behind.
type Deed = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// Makes an account in a namespace, of this name and with the rights of these manifests; its token.
type Admit = Arc<dyn Fn(String, String, String) -> BoxFuture<'static, String> + Send + Sync>;

/// An API server to talk to.
#[derive(Clone)]
pub(crate) struct Server {
    /// As an administrator.
    pub(crate) client: kube::Client,
    /// Anonymous: without credentials.
    pub(crate) stranger: kube::Client,
    /// Grants rights to a user.
    pub(crate) admit: Admit,
    /// Forgets old versions.
    pub(crate) forget: Deed,
    /// Installs the kinds of snapshots, groups of them, and grants.
    pub(crate) install: Deed,
}

impl Server {
    /// Old versions can't be listed or watched from any more.
    pub(crate) async fn forget(&self) {
        (self.forget)().await;
    }

    /// From here on there are snapshots and grants.
    pub(crate) async fn install(&self) {
        (self.install)().await;
    }
}

/// The caller.
enum Caller {
    Administrator,
    Nobody,
    Bearer {
        token: String,
        /// Their names in the transcript.
        called: String,
    },
}

/// One conversation.
pub(crate) struct Case {
    server: Server,
    caller: Caller,
    /// The value of `CASE`.
    name: String,
    transcript: Transcript,
}

/// The server's answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// The HTTP status code.
    pub(crate) code: u16,
    /// The body.
    pub(crate) body: Value,
    /// The texts of its `Warning` headers, as they stand there.
    pub(crate) warnings: Vec<String>,
}

impl Answer {
    /// A text of the body: `answer.text("/metadata/name")`.
    pub(crate) fn text(&self, pointer: &str) -> &str {
        self.body.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// The object's version.
    pub(crate) fn version(&self) -> String {
        self.text("/metadata/resourceVersion").to_owned()
    }

    /// The object's uid.
    pub(crate) fn uid(&self) -> String {
        self.text("/metadata/uid").to_owned()
    }

    /// The names of a list's items.
    pub(crate) fn names(&self) -> Vec<&str> {
        let items = self.body["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        items.iter().filter_map(|item| item.pointer("/metadata/name")?.as_str()).collect()
    }
}

/// A patch's type.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PatchType {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// By merge keys.
    Strategic,
    /// Server-side apply.
    Apply,
}

impl PatchType {
    fn media(self) -> &'static str {
        match self {
            Self::Json => "application/json-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::Apply => "application/apply-patch+yaml",
        }
    }
}

/// Looks again and again until there is an answer.
pub(super) async fn asked<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let answered = async {
        loop {
            if let Some(answer) = look().await {
                return answer;
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENCE, answered).await.unwrap_or_else(|_| panic!("never came: {what}"))
}

impl Case {
    /// Begins a conversation in a namespace of its own, called `CASE`.
    pub(crate) async fn begin(server: &Server) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("c{:07x}-{:03}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let transcript = Transcript::new(&name);
        let case = Self { server: server.clone(), caller: Caller::Administrator, name, transcript };
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "CASE"}});
        let made = case.ask(&Method::POST, "/api/v1/namespaces", "application/json", &[], Some(&namespace)).await;
        assert_eq!(made.code, 201, "{made:?}");
        case
    }

    /// The same, and creates an object. Returns its path and the answer, too.
    pub(crate) async fn with(server: &Server, collection: &str, object: Value) -> (Self, String, Answer) {
        let mut case = Self::begin(server).await;
        let path = format!("{collection}/{}", object["metadata"]["name"].as_str().expect("a name"));
        let made = case.post(collection, object).await;
        (case, path, made)
    }

    /// From here on the requests have no token.
    pub(crate) fn as_nobody(&mut self) {
        self.caller = Caller::Nobody;
    }

    /// From here on the requests have a token that the server has not issued.
    pub(crate) fn as_bearer_of(&mut self, token: &str) {
        self.caller = Caller::Bearer { token: token.to_owned(), called: format!("the bearer of {token}") };
    }

    /// From here on a service account of the case's namespace asks, which has the rights of these `ClusterRole`s and `Role`s
    /// and no others.
    pub(crate) async fn as_account(&mut self, name: &str, roles: &[Value]) {
        let manifests: Vec<String> = roles.iter().map(|role| role.to_string().replace("CASE", &self.name)).collect();
        let admitted = (self.server.admit)(self.name.clone(), name.to_owned(), manifests.join("\n---\n"));
        let token = tokio::time::timeout(PATIENCE, admitted).await.unwrap();
        self.caller = Caller::Bearer { token, called: format!("the service account {name}") };
    }

    /// From here on the administrator asks, as in the beginning.
    pub(crate) fn as_administrator(&mut self) {
        self.caller = Caller::Administrator;
    }

    /// From here on the transcript has `managedFields`.
    pub(crate) fn tell_managed_fields(&mut self) {
        self.transcript.managed_fields = true;
    }

    /// Puts a finding into the transcript.
    pub(crate) fn note(&mut self, title: &str, finding: &Value) {
        self.transcript.event(title, 200, finding);
    }

    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        self.told(&Method::GET, path, "", &[], None).await
    }

    /// Asks for the answer in another form.
    pub(crate) async fn get_as(&mut self, path: &str, accept: &str) -> Answer {
        self.told(&Method::GET, path, "", &[("accept", accept)], None).await
    }

    pub(crate) async fn post(&mut self, path: &str, body: Value) -> Answer {
        self.told(&Method::POST, path, "application/json", &[], Some(&body)).await
    }

    pub(crate) async fn put(&mut self, path: &str, body: Value) -> Answer {
        self.told(&Method::PUT, path, "application/json", &[], Some(&body)).await
    }

    pub(crate) async fn patch(&mut self, kind: PatchType, path: &str, body: Value) -> Answer {
        self.told(&Method::PATCH, path, kind.media(), &[], Some(&body)).await
    }

    /// Patches once admission lets it: it looks into caches of its own, which hear of what was just made a moment later.
    pub(crate) async fn patch_when_known(&mut self, kind: PatchType, path: &str, body: Value) -> Answer {
        let dry = format!("{path}?dryRun=All");
        let known = async || {
            let asked = self.ask(&Method::PATCH, &dry, kind.media(), &[], Some(&body)).await;
            (asked.code != 403).then_some(())
        };
        asked("admission that has heard of it", known).await;
        self.patch(kind, path, body).await
    }

    pub(crate) async fn delete(&mut self, path: &str) -> Answer {
        self.told(&Method::DELETE, path, "", &[], None).await
    }

    /// With preconditions and the like.
    pub(crate) async fn delete_with(&mut self, path: &str, options: Value) -> Answer {
        self.told(&Method::DELETE, path, "application/json", &[], Some(&options)).await
    }

    /// Any request.
    pub(crate) async fn send(&mut self, method: &Method, path: &str, media: &str, body: &Value) -> Answer {
        self.told(method, path, media, &[], Some(body)).await
    }

    async fn told(
        &mut self,
        method: &Method,
        path: &str,
        media: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Answer {
        let answer = self.ask(method, path, media, headers, body).await;
        let asked = self.transcript.clean(path);
        let mut shown = headers.to_vec();
        match &self.caller {
            Caller::Administrator => {}
            Caller::Nobody => shown.push(("as", "nobody")),
            Caller::Bearer { called, .. } => shown.push(("as", called)),
        }
        self.transcript.exchange(method.as_str(), &asked, &shown, media, body, answer.code, &answer.body);
        answer
    }

    /// Any request with a body that only a text can be, such as one with a field twice. It is not in the transcript.
    pub(crate) async fn write(&self, method: &Method, path: &str, media: &str, text: &str) -> Answer {
        self.answer(self.request(method, path, media, &[], Some(text))).await
    }

    pub(super) async fn ask(
        &self,
        method: &Method,
        path: &str,
        media: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Answer {
        let body = body.map(Value::to_string);
        self.answer(self.request(method, path, media, headers, body.as_deref())).await
    }

    async fn answer(&self, request: Request<kube::client::Body>) -> Answer {
        let response = self.answered(request).await;
        let code = response.status().as_u16();
        let warnings = response.headers().get_all("warning").iter();
        let warnings = warnings.map(|it| it.to_str().unwrap().to_owned()).collect();
        let bytes = tokio::time::timeout(PATIENCE, response.into_body().collect_bytes()).await.unwrap().unwrap();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Answer { code, body, warnings }
    }

    async fn answered(&self, request: Request<kube::client::Body>) -> http::Response<kube::client::Body> {
        let client = match self.caller {
            Caller::Administrator => &self.server.client,
            Caller::Nobody | Caller::Bearer { .. } => &self.server.stranger,
        };
        tokio::time::timeout(PATIENCE, client.send(request)).await.unwrap().unwrap()
    }

    fn request(
        &self,
        method: &Method,
        path: &str,
        media: &str,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) -> Request<kube::client::Body> {
        let mut request = Request::builder().method(method).uri(path.replace("CASE", &self.name));
        request = request.header("user-agent", "conformance/1.0");
        if !media.is_empty() {
            request = request.header("content-type", media);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Caller::Bearer { token, .. } = &self.caller {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let body = body.map_or_else(Vec::new, |body| body.replace("CASE", &self.name).into_bytes());
        request.body(kube::client::Body::from(body)).unwrap()
    }

    /// Watches until `count` events have come, or the stream has ended. Bookmarks count only if `path` asks for them.
    pub(crate) async fn watch(&mut self, path: &str, count: usize) -> Vec<Value> {
        self.transcript.begin();
        let request = self.request(&Method::GET, path, "", &[], None);
        let response = self.answered(request).await;
        let (code, asked) = (response.status().as_u16(), self.transcript.clean(path));
        let mut body = response.into_body().into_data_stream();
        let (mut buffer, mut seen) = (Vec::new(), Vec::new());
        while seen.len() < count {
            let next = tokio::time::timeout(PATIENCE, body.next()).await.expect("an event in time");
            let Some(bytes) = next else { break };
            buffer.extend_from_slice(&bytes.unwrap());
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n').filter(|_| seen.len() < count) {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line).unwrap();
                self.transcript.event(&asked, code, &event);
                seen.push(event);
            }
        }
        if let Ok(rest) = serde_json::from_slice::<Value>(&buffer) {
            // A refusal is no line.
            self.transcript.event(&asked, code, &rest);
            seen.push(rest);
        }
        seen
    }

    /// Removes the last watch from the transcript: it is requested again.
    pub(crate) fn untell(&mut self) {
        self.transcript.withdraw();
    }

    /// Holds what was said against what was written down, and tidies up.
    pub(crate) fn end(self, name: &str) {
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance/snapshots"));
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.bind(|| insta::assert_snapshot!(name, self.transcript.text()));
    }
}
