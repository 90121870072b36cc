//! Every way in which a webhook call can fail, over the wire: the error, the metrics, the audit annotations, and that
//! nothing hangs or leaks.
//!
//! ```text
//!   faults × {Fail, Ignore} × {first round, second round, validation} × {for real, dry run}
//! ```
//!
//! In the second round a webhook succeeds first and fails when it is reinvoked. A Service that switches from a good to
//! a bad address in between cannot be scripted in HTTP. First, each webhook responds once with ample time, so that a
//! connection exists and short timeouts are not spent on a handshake.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lockgate_admission::call::Phase;
use lockgate_admission::decision::{Cause, Decision};
use lockgate_admission::engine::Engine;
use lockgate_admission::host::Host;
use lockgate_admission::https::{
    HttpsCaller, MAX_RESPONSE_BYTES, ResolveError, ServiceResolver, Settings,
};
use lockgate_admission::trace::CallOutcome;
use lockgate_api::decode::Bytes;
use lockgate_api::registration::Webhook;
use lockgate_api::registration::hub::{ClientConfig, ServiceReference};
use lockgate_testkit::certs::{Authority, Identity};
use lockgate_testkit::{Blackhole, Ending, Gate, Recorded, ScriptedResponse, WebhookServer};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::support::*;

const H: &str = "h.example.com";

/// The timeouts of webhooks that never respond and of webhooks that do, on a busy machine.
const SHORT_SECONDS: i32 = 1;
const AMPLE_SECONDS: i32 = 20;

/// The tolerated delay after the deadline on a busy machine.
const SLACK: Duration = Duration::from_secs(5);

/// The number of concurrent cells: few enough that handshakes are not delayed.
const AT_ONCE: usize = 24;

/// One way to fail.
struct Fault {
    name: &'static str,
    way: Way,
    /// The text after `failed calling webhook …: `, with `URL` for the quoted URL and at most one `*` for unpredictable
    /// text.
    says: String,
    /// The code in metrics.
    code: i32,
    /// The phase in which the call failed, if it was in progress.
    phase: Option<Phase>,
    /// The number of requests sent for one failing call.
    requests: usize,
}

enum Way {
    /// The webhook responds with this.
    Answers(ScriptedResponse),
    /// The address, which no request reaches.
    At(SocketAddr),
}

/// The resources that all faults use.
struct Scene {
    authority: Authority,
    server: WebhookServer,
    others: Vec<WebhookServer>,
    hole: Blackhole,
    gate: Gate,
}

impl Scene {
    async fn set() -> Self {
        let authority = Authority::new("right");
        let server = serve(&authority, authority.issue(&["*.default.svc"])).await;
        let label = json!([{"op": "add", "path": "/metadata/labels/z", "value": "1"}]);
        server.script("/change", [ScriptedResponse::patch(&label)]);
        let stranger = Authority::new("stranger");
        let others = vec![
            WebhookServer::builder().stall_handshakes().start().await,
            serve(&authority, stranger.issue(&["*.default.svc"])).await,
            serve(&authority, authority.issue_expired(&["*.default.svc"])).await,
            serve(&authority, authority.issue(&["other.default.svc"])).await,
        ];
        Self {
            authority,
            server,
            others,
            hole: Blackhole::start().await,
            gate: Gate::new(),
        }
    }

    fn faults(&self) -> Vec<Fault> {
        let [stalling, stranger, expired, misnamed] =
            [0, 1, 2, 3].map(|n| self.others[n].address());
        let mut faults = vec![
            unreachable(
                "refused",
                SocketAddr::from(([127, 0, 0, 1], 1)),
                Phase::Connect,
                "dial tcp 127.0.0.1:1: connect: connection refused",
            ),
            unreachable("blackholed", self.hole.address(), Phase::Connect, TIMEOUT),
            unreachable("TLS stall", stalling, Phase::Tls, TIMEOUT),
            unreachable(
                "wrong CA",
                stranger,
                Phase::Tls,
                "tls: failed to verify certificate: x509: certificate signed by unknown authority",
            ),
            unreachable(
                "expired",
                expired,
                Phase::Tls,
                "tls: failed to verify certificate: x509: certificate has expired or is not yet \
                 valid: current time * is after 2021-01-01T00:00:00Z",
            ),
            unreachable(
                "wrong name",
                misnamed,
                Phase::Tls,
                "tls: failed to verify certificate: x509: certificate is valid for \
                 other.default.svc, not hook.default.svc",
            ),
        ];
        faults.extend(refusals());
        faults.extend(breaks(&self.gate));
        faults.extend(bad_answers());
        // Faults that only wait come first, while the machine is otherwise idle.
        faults.sort_by_key(|fault| !fault.times_out());
        faults
    }
}

const TIMEOUT: &str = "context deadline exceeded";
const UNREADABLE: &str =
    "unexpected error when reading response body. Please retry. Original error: ";

async fn serve(authority: &Authority, identity: Identity) -> WebhookServer {
    let builder = WebhookServer::builder().identity(identity, authority.pem());
    builder.http1_only().start().await
}

fn unreachable(name: &'static str, at: SocketAddr, phase: Phase, problem: &str) -> Fault {
    Fault {
        name,
        way: Way::At(at),
        says: format!("failed to call webhook: Post URL: {problem}"),
        code: 503,
        phase: Some(phase),
        requests: 0,
    }
}

fn answers(name: &'static str, answer: ScriptedResponse, code: i32, says: &str) -> Fault {
    Fault {
        name,
        way: Way::Answers(answer),
        says: says.to_owned(),
        code,
        phase: None,
        requests: 1,
    }
}

/// HTTP responses with an error status.
fn refusals() -> Vec<Fault> {
    let text = |code, body: &'static str| {
        ScriptedResponse::http(code, body).header("content-type", "text/plain; charset=utf-8")
    };
    let call = |problem: &str| format!("failed to call webhook: {problem}");
    let redirected = |name, code: u16| {
        answers(
            name,
            ScriptedResponse::redirect(code, "/elsewhere"),
            i32::from(code),
            &call(&format!(
                "the server responded with the status code {code} but did not return more \
                 information"
            )),
        )
    };
    let too_many =
        call("the server has received too many requests and has asked us to try again later");
    let unavailable = call("the server is currently unable to handle the request");
    vec![
        redirected("301", 301),
        redirected("302", 302),
        redirected("307", 307),
        redirected("308", 308),
        answers(
            "400",
            text(400, "no"),
            400,
            &call("the server rejected our request for an unknown reason"),
        ),
        answers("403", text(403, "go away"), 403, &call("go away")),
        answers(
            "404",
            text(404, "no"),
            404,
            &call("the server could not find the requested resource"),
        ),
        answers(
            "500",
            text(500, "boom\n"),
            500,
            &call("an error on the server (\"boom\") has prevented the request from succeeding"),
        ),
        answers("503", text(503, "no"), 503, &unavailable),
        answers("429", text(429, "slow down"), 429, &too_many),
        Fault {
            // The first attempt and ten retries.
            requests: 11,
            ..answers(
                "429 with Retry-After: 0",
                text(429, "slow down").header("retry-after", "0"),
                429,
                &too_many,
            )
        },
        Fault {
            requests: 11,
            ..answers(
                "503 with Retry-After: 0",
                text(503, "slow down").header("retry-after", "0"),
                503,
                &unavailable,
            )
        },
        Fault {
            phase: Some(Phase::Wait),
            ..answers(
                "429 with Retry-After: 3600",
                text(429, "slow down").header("retry-after", "3600"),
                503,
                &format!("failed to call webhook: Post URL: {TIMEOUT}"),
            )
        },
    ]
}

/// Connections that break, and responses that are too slow or too large.
fn breaks(gate: &Gate) -> Vec<Fault> {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n";
    let reading = |name, answer, problem: &str| Fault {
        phase: Some(Phase::Read),
        ..answers(
            name,
            answer,
            503,
            &format!("failed to call webhook: {UNREADABLE}{problem}"),
        )
    };
    vec![
        Fault {
            // The reset may be received before the headers.
            phase: None,
            ..answers(
                "reset after headers",
                ScriptedResponse::raw(head, Ending::Reset),
                503,
                "failed to call webhook: *: read: connection reset by peer",
            )
        },
        Fault {
            phase: Some(Phase::Wait),
            ..answers(
                "closed before the answer",
                ScriptedResponse::raw("", Ending::Close),
                503,
                "failed to call webhook: Post URL: EOF",
            )
        },
        reading(
            "closed mid-body",
            ScriptedResponse::raw(format!("{head}{{\"kind\":"), Ending::Close),
            "unexpected EOF",
        ),
        reading(
            "silent mid-body",
            ScriptedResponse::raw(format!("{head}{{\"kind\":"), Ending::Hold),
            TIMEOUT,
        ),
        reading(
            "slow drip",
            ScriptedResponse::drip(Duration::from_millis(50)),
            TIMEOUT,
        ),
        reading(
            "1 GiB body",
            ScriptedResponse::huge(1 << 30),
            &format!("response body is larger than {MAX_RESPONSE_BYTES} bytes"),
        ),
        Fault {
            phase: Some(Phase::Wait),
            ..answers(
                "late answer",
                ScriptedResponse::allow().after(gate),
                503,
                &format!("failed to call webhook: Post URL: {TIMEOUT}"),
            )
        },
    ]
}

/// Responses with invalid content.
fn bad_answers() -> Vec<Fault> {
    let json = |body: &'static str| {
        ScriptedResponse::http(200, body).header("content-type", "application/json")
    };
    let review = |change: fn(&mut Value)| {
        ScriptedResponse::review(move |review| {
            let mut answer = json!({
                "kind": "AdmissionReview",
                "apiVersion": review["apiVersion"],
                "response": {"uid": review["request"]["uid"], "allowed": true},
            });
            change(&mut answer);
            answer
        })
    };
    let invalid = |problem: &str| format!("received invalid webhook response: {problem}");
    vec![
        answers(
            "garbage",
            json("\u{1}\u{2}nonsense"),
            503,
            "failed to call webhook: yaml: control characters are not allowed",
        ),
        answers(
            "empty",
            json(""),
            503,
            "failed to call webhook: 0-length response with status code: 200 and content type: \
             application/json",
        ),
        answers(
            "wrong uid",
            review(|answer| answer["response"]["uid"] = json!("other")),
            503,
            &invalid("expected response.uid=\"*\", got \"other\""),
        ),
        answers(
            "wrong version",
            review(|answer| answer["apiVersion"] = json!("admission.k8s.io/v1beta1")),
            503,
            "failed to call webhook: converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): \
             unknown conversion",
        ),
        answers(
            "no response",
            review(|answer| answer["response"] = Value::Null),
            503,
            &invalid("webhook response was absent"),
        ),
    ]
}

/// The point of a request at which the webhook fails.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    FirstRound,
    SecondRound,
    Validation,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Cell {
    place: Place,
    ignore: bool,
    dry_run: bool,
}

fn cells() -> impl Iterator<Item = Cell> {
    let places = [Place::FirstRound, Place::SecondRound, Place::Validation];
    places.into_iter().flat_map(|place| {
        [(false, false), (false, true), (true, false), (true, true)].map(|(ignore, dry_run)| Cell {
            place,
            ignore,
            dry_run,
        })
    })
}

/// Resolves the service `hook` to a good address this many times, and to another address afterwards.
#[derive(Debug)]
struct Moving {
    good: SocketAddr,
    left: AtomicUsize,
    then: SocketAddr,
}

impl ServiceResolver for Moving {
    fn resolve(&self, _: &str, name: &str, _: i32) -> Result<String, ResolveError> {
        let is_good = || {
            let left = |left: usize| left.checked_sub(1);
            let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
            self.left.fetch_update(set, get, left).is_ok()
        };
        let address = if name == "change" || is_good() {
            self.good
        } else {
            self.then
        };
        Ok(address.to_string())
    }
}

fn served(name: &str, service: &str, path: &str, ca: &str, seconds: i32) -> Webhook {
    Webhook {
        client_config: ClientConfig {
            url: None,
            service: Some(ServiceReference {
                namespace: String::from("default"),
                name: service.to_owned(),
                path: Some(path.to_owned()),
                port: None,
            }),
            ca_bundle: Some(Bytes(ca.as_bytes().to_vec())),
        },
        timeout_seconds: Some(seconds),
        ..webhook(name)
    }
}

/// Returns true if a text matches the pattern, which has at most one `*`.
fn fits(text: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => text == pattern,
        Some((start, end)) => {
            text.len() >= start.len() + end.len() && text.starts_with(start) && text.ends_with(end)
        }
    }
}

impl Fault {
    fn times_out(&self) -> bool {
        self.says.ends_with(TIMEOUT)
    }

    fn seconds(&self) -> i32 {
        if self.times_out() {
            SHORT_SECONDS
        } else {
            AMPLE_SECONDS
        }
    }

    /// Runs one cell and checks all of its observable effects.
    async fn try_in(&self, cell: Cell, scene: &Scene, path: &str) {
        let what = format!("{} in {cell:?}", self.name);
        let caller = self.caller(cell, scene, path);
        let kind = match cell.place {
            Place::Validation => Validating,
            Place::FirstRound | Place::SecondRound => Mutating,
        };
        let mut request = create();
        request.dry_run = cell.dry_run;
        // A separate engine, so that its counters start at zero.
        let before = world(&caller);
        let hook = served(H, "hook", path, scene.authority.pem(), AMPLE_SECONDS);
        before.hook_in(kind, "c", hook, Reply::allow());
        before.run(kind, request.clone()).await.allowed();

        let world = world(&caller);
        self.register(cell, scene, path, &world);
        let began = Instant::now();
        let outcome = world.run(kind, request).await;
        let took = began.elapsed();

        let limit = Duration::from_secs(self.seconds().unsigned_abs().into());
        // A call that timed out has used all of its timeout; other failures are distinguished by their message.
        assert!(!self.times_out() || took >= limit, "{what}: {took:?}");
        self.check_decision(cell, path, &outcome, &what);
        assert_eq!(outcome.annotations(), annotations(cell), "{what}");
        assert_eq!(world.counters(), self.counters(cell), "{what}");
        if cell.place != Place::Validation {
            let label = &outcome.object()["metadata"]["labels"]["z"];
            let is_changed = cell.place == Place::SecondRound;
            assert_eq!(!label.is_null(), is_changed, "{what}");
        }
    }

    /// Creates the caller, with a webhook that succeeds as often as needed before it fails.
    fn caller(&self, cell: Cell, scene: &Scene, path: &str) -> Arc<HttpsCaller> {
        let good = scene.server.address();
        let answers = answers_before(cell);
        let mut script = vec![ScriptedResponse::allow(); answers];
        let mut then = good;
        match &self.way {
            Way::Answers(answer) => script.push(answer.clone()),
            Way::At(address) => then = *address,
        }
        scene.server.script(path, script);
        Arc::new(HttpsCaller::new(Settings {
            resolver: Arc::new(Moving {
                good,
                left: AtomicUsize::new(answers),
                then,
            }),
            ..Settings::default()
        }))
    }

    fn register(&self, cell: Cell, scene: &Scene, path: &str, world: &World) {
        let ca = scene.authority.pem();
        let mut hook = served(H, "hook", path, ca, self.seconds());
        if cell.ignore {
            hook = ignoring(hook);
        }
        let kind = match cell.place {
            Place::Validation => Validating,
            Place::FirstRound => Mutating,
            Place::SecondRound => {
                // A later webhook changes the object, so this one is reinvoked.
                hook = if_needed(hook);
                let change = served("z.example.com", "change", "/change", ca, AMPLE_SECONDS);
                world.hook_in(Mutating, "z", change, Reply::allow());
                Mutating
            }
        };
        world.hook_in(kind, "c", hook, Reply::allow());
    }

    fn check_decision(&self, cell: Cell, path: &str, outcome: &Outcome, what: &str) {
        let url = format!(
            "\"https://hook.default.svc:443{path}?timeout={}s\"",
            self.seconds()
        );
        let says = self.says.replace("URL", &url);
        let last = outcome.admission.trace().calls().last();
        let (_, plugin, _, call) = last.unwrap_or_else(|| panic!("{what}: no call"));
        let round = u8::from(cell.place == Place::SecondRound);
        assert_eq!(plugin.round, round, "{what}");
        match &call.outcome {
            CallOutcome::Failed {
                reason,
                code,
                phase,
            } => {
                assert!(fits(reason, &says), "{what}: {reason}");
                assert_eq!(*code, self.code, "{what}");
                if self.name != "reset after headers" {
                    assert_eq!(*phase, self.phase, "{what}");
                }
            }
            other => panic!("{what}: {other:?}"),
        }
        match &outcome.decision {
            Decision::Allow => assert!(cell.ignore, "{what}"),
            Decision::Deny(denial) => {
                assert!(!cell.ignore, "{what}");
                assert_eq!(denial.cause, Cause::CallFailed, "{what}");
                let status = &denial.status;
                assert_eq!(
                    (status.code, &*status.reason, &*status.status),
                    (500, "InternalError", "Failure"),
                    "{what}"
                );
                let reason = format!("failed calling webhook \"{H}\": {says}");
                let message = format!("Internal error occurred: {reason}");
                assert!(
                    fits(&status.message, &message),
                    "{what}: {}",
                    status.message
                );
                let causes = status
                    .details
                    .as_ref()
                    .and_then(|details| details.causes.as_ref());
                let cause = causes.and_then(|causes| causes.first());
                let cause = cause.map(|cause| cause.message.as_str());
                assert!(
                    fits(cause.unwrap_or_default(), &reason),
                    "{what}: {cause:?}"
                );
            }
        }
    }

    /// The incremented counters, in display order.
    fn counters(&self, cell: Cell) -> Vec<String> {
        let kind = match cell.place {
            Place::Validation => "validating",
            Place::FirstRound | Place::SecondRound => "admit",
        };
        let request = |code: i32, name: &str, rejected: bool| {
            format!(
                "webhook_request_total{{code=\"{code}\",name=\"{name}\",operation=\"CREATE\",\
                 rejected=\"{rejected}\",type=\"{kind}\"}} 1"
            )
        };
        let code = self.code;
        let mut lines = vec![if cell.ignore {
            format!("webhook_fail_open_count{{name=\"{H}\",type=\"{kind}\"}} 1")
        } else {
            format!(
                "webhook_rejection_count{{error_type=\"calling_webhook_error\",name=\"{H}\",\
                 operation=\"CREATE\",rejection_code=\"{code}\",type=\"{kind}\"}} 1"
            )
        }];
        if cell.place == Place::SecondRound {
            lines.extend([request(200, H, false), request(200, "z.example.com", false)]);
        }
        lines.push(request(code, H, !cell.ignore));
        lines
    }

    fn check_requests(&self, cell: Cell, all: &[Recorded], path: &str) {
        let what = format!("{} in {cell:?}", self.name);
        let seen: Vec<&Recorded> = all.iter().filter(|seen| seen.path == path).collect();
        assert_eq!(seen.len(), answers_before(cell) + self.requests, "{what}");
        for (nth, request) in seen.into_iter().enumerate() {
            let review: Value = serde_json::from_slice(&request.body).unwrap();
            assert_eq!(review["request"]["dryRun"], cell.dry_run, "{what}");
            if nth == 0 {
                continue;
            }
            assert_eq!(
                request.query,
                format!("timeout={}s", self.seconds()),
                "{what}"
            );
        }
    }
}

/// The number of successful calls before the failure: one initially, and one in a first round.
fn answers_before(cell: Cell) -> usize {
    1 + usize::from(cell.place == Place::SecondRound)
}

fn world(caller: &Arc<HttpsCaller>) -> World {
    World::with(|host| {
        Engine::new(Host {
            caller: caller.clone(),
            ..host
        })
    })
}

/// The audit annotations.
fn annotations(cell: Cell) -> Vec<(String, String)> {
    let mutation = |round_and_index: &str, configuration: &str, webhook: &str, mutated: bool| {
        (
            format!("mutation.webhook.admission.k8s.io/{round_and_index}"),
            format!(
                "{{\"configuration\":\"{configuration}\",\"webhook\":\"{webhook}\",\
                 \"mutated\":{mutated}}}"
            ),
        )
    };
    let (prefix, failing) = match cell.place {
        Place::FirstRound => ("mutation", "round_0_index_0"),
        Place::SecondRound => ("mutation", "round_1_index_0"),
        Place::Validation => ("validating", "round_0_index_0"),
    };
    let mut all = Vec::new();
    if cell.ignore {
        let key = format!("failed-open.{prefix}.webhook.admission.k8s.io/{failing}");
        all.push((key, String::from(H)));
    }
    match cell.place {
        Place::Validation => {}
        Place::FirstRound => all.push(mutation(failing, "c", H, false)),
        Place::SecondRound => all.extend([
            mutation("round_0_index_0", "c", H, false),
            mutation("round_0_index_1", "z", "z.example.com", true),
            mutation("round_1_index_0", "c", H, false),
            (
                String::from("patch.webhook.admission.k8s.io/round_0_index_1"),
                String::from(
                    "{\"configuration\":\"z\",\"webhook\":\"z.example.com\",\"patch\":[{\"op\":\
                     \"add\",\"path\":\"/metadata/labels/z\",\"value\":\"1\"}],\"patchType\":\
                     \"JSONPatch\"}",
                ),
            ),
        ]),
    }
    all
}

/// Waits until the number of tasks is back to the initial one.
async fn settled(before: usize) {
    let alive = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let settle = async {
        while alive() > before {
            tokio::task::yield_now().await;
        }
    };
    let settled = tokio::time::timeout(SLACK, settle).await;
    assert!(settled.is_ok(), "{} tasks, {before} before", alive());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_meets_the_failure_policy_in_time() {
    let before = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();
    let scene = Arc::new(Scene::set().await);
    let faults = Arc::new(scene.faults());
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut tasks = JoinSet::new();
    let path = |fault: usize, cell: usize| format!("/{fault}/{cell}");
    for at in 0..faults.len() {
        for (nth, cell) in cells().enumerate() {
            let (scene, faults, turns) = (scene.clone(), faults.clone(), turns.clone());
            tasks.spawn(async move {
                let _turn = turns.acquire().await;
                faults[at].try_in(cell, &scene, &path(at, nth)).await;
            });
        }
    }
    while let Some(done) = tasks.join_next().await {
        if let Err(failed) = done {
            std::panic::resume_unwind(failed.into_panic());
        }
    }

    let requests = scene.server.requests();
    for (at, fault) in faults.iter().enumerate() {
        for (nth, cell) in cells().enumerate() {
            fault.check_requests(cell, &requests, &path(at, nth));
        }
    }
    // Redirects are not followed.
    assert!(requests.iter().all(|seen| seen.path != "/elsewhere"));
    // Of a huge response no more is read or buffered than the limit and the data in flight.
    let streamed = scene.server.streamed_bytes();
    let limit = (MAX_RESPONSE_BYTES as u64 + (8 << 20)) * cells().count() as u64;
    assert!(streamed < limit, "{streamed} of {limit}");

    // A late response is dropped, and no connection leaks.
    scene.gate.open();
    for server in scene.others.iter().chain([&scene.server]) {
        let closed = tokio::time::timeout(SLACK, server.wait_for_open_connections(0)).await;
        assert!(closed.is_ok(), "connections are left open");
    }
    drop(faults);
    let scene = Arc::into_inner(scene).unwrap();
    for server in scene.others.into_iter().chain([scene.server]) {
        server.stop().await;
    }
    settled(before).await;
}
