//! Starts a server, sends it reviews over persistent connections, and prints the number of responses per second of the
//! server's CPU time.

use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use lockgate_webhook::testing::{Authority, Review};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

type Failure = Box<dyn Error + Send + Sync>;

const CONNECTIONS: usize = 8;
const WARM_UP: Duration = Duration::from_secs(1);

/// A Pod as Deployments create it.
const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"web-7d4b9c6f5-","namespace":"default","labels":{"app":"web","pod-template-hash":"7d4b9c6f5"},"annotations":{"prometheus.io/scrape":"true"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-7d4b9c6f5","uid":"6c1c6f3e-6393-11e8-b7cc-42010a800002","controller":true,"blockOwnerDeletion":true}]},"spec":{"volumes":[{"name":"config","configMap":{"name":"web","defaultMode":420}},{"name":"kube-api-access","projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}}],"defaultMode":420}}],"containers":[{"name":"web","image":"registry.example.com/web:1.2.3","ports":[{"name":"http","containerPort":8080,"protocol":"TCP"}],"env":[{"name":"POD_NAME","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.name"}}},{"name":"LOG","value":"info"}],"resources":{"limits":{"cpu":"500m","memory":"256Mi"},"requests":{"cpu":"100m","memory":"128Mi"}},"volumeMounts":[{"name":"config","mountPath":"/etc/web"},{"name":"kube-api-access","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],"livenessProbe":{"httpGet":{"path":"/healthz","port":"http","scheme":"HTTP"},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"web","serviceAccount":"web","securityContext":{},"schedulerName":"default-scheduler","tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300},{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],"priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"},"status":{}}"#;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let (Some(label), Some(seconds), Some(port)) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err("usage: load LABEL SECONDS PORT CERTS COMMAND...".into());
    };
    let certs = arguments.next().ok_or("no folder for certificates")?;
    let command: Vec<String> = arguments.collect();
    let address: SocketAddr = format!("127.0.0.1:{port}").parse()?;
    let authority = Authority::new();
    let (certificate, key) = authority.issue(&["127.0.0.1"]);
    std::fs::create_dir_all(&certs)?;
    std::fs::write(Path::new(&certs).join("tls.crt"), certificate)?;
    std::fs::write(Path::new(&certs).join("tls.key"), key)?;

    let [program, rest @ ..] = &command[..] else {
        return Err("no command".into());
    };
    let child = Command::new(program)
        .args(rest)
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()?;
    let server = Started(child);
    let client = client(authority.pem())?;
    let start = Instant::now();
    while connect(&client, address).await.is_err() {
        if start.elapsed() > Duration::from_secs(30) {
            return Err("the server does not start".into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for path in ["/mutate", "/validate"] {
        load(&client, address, path, WARM_UP).await?;
        let (cpu, clock) = (server.cpu()?, Instant::now());
        let count = load(
            &client,
            address,
            path,
            Duration::from_secs(seconds.parse()?),
        )
        .await?;
        let (cpu, elapsed) = (server.cpu()? - cpu, clock.elapsed().as_secs_f64());
        let per_cpu = count as f64 / cpu;
        println!(
            "{label}\t{path}\t{per_cpu:.0}\t{:.0}",
            count as f64 / elapsed
        );
    }
    Ok(())
}

/// Sends reviews for a duration. Returns the number of responses.
async fn load(
    client: &TlsConnector,
    address: SocketAddr,
    path: &'static str,
    time: Duration,
) -> Result<u64, Failure> {
    let (stop, count) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let review = Bytes::from(Review::create(POD).to_json());
    let mut callers = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut connection = connect(client, address).await?;
        let (stop, count, review) = (Arc::clone(&stop), Arc::clone(&count), review.clone());
        callers.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let request = http::Request::post(format!("{path}?timeout=10s"))
                    .header("host", "webhook")
                    .header("content-type", "application/json")
                    .body(Full::new(review.clone()))?;
                connection.ready().await?;
                let response = connection.send_request(request).await?;
                let status = response.status();
                let body = response.into_body().collect().await?.to_bytes();
                let answer: serde_json::Value = serde_json::from_slice(&body)?;
                let patched = answer["response"].get("patch").is_some();
                if status != 200
                    || answer["response"]["allowed"] != true
                    || patched != (path == "/mutate")
                {
                    return Err(format!("{status}: {answer}").into());
                }
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<(), Failure>(())
        }));
    }
    tokio::time::sleep(time).await;
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await??;
    }
    Ok(count.load(Ordering::Relaxed))
}

fn client(ca_pem: &str) -> Result<TlsConnector, Failure> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca_pem.as_bytes())?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

async fn connect(
    client: &TlsConnector,
    address: SocketAddr,
) -> Result<SendRequest<Full<Bytes>>, Failure> {
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    let stream = client
        .connect(ServerName::from(address.ip()), socket)
        .await?;
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

/// A process that is killed on drop.
struct Started(Child);

impl Started {
    /// User and system time, in seconds.
    fn cpu(&self) -> Result<f64, Failure> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        let after_name = text.rsplit_once(')').ok_or("no stat")?.1;
        let ticks: u64 = after_name
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|field| field.parse::<u64>().unwrap_or_default())
            .sum();
        // Linux reports hundredths of a second on every supported machine.
        Ok(ticks as f64 / 100.0)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
