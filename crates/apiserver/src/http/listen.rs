//! The TLS handshake, and the peer's identity from it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use lockgate_listener::{Connected, Handshake, tls_handshake};
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::task::AbortOnDropHandle;

use crate::heavy::Heavy;
use crate::http::tls::{PeerCertificates, Users};

/// The peer of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    /// The address.
    pub(crate) address: SocketAddr,
    /// The client certificate, not yet verified.
    pub(crate) certificate: Option<Arc<PeerCertificates>>,
}

/// Completes the TLS handshake.
#[derive(Debug)]
pub(crate) struct Secure {
    pub(crate) config: Arc<ServerConfig>,
    /// The verifier of client certificates.
    pub(crate) users: Arc<Users>,
    /// The threads of handshakes, which take a hundred times as long as a record.
    pub(crate) threads: Heavy,
}

impl Handshake<Peer> for Secure {
    type Stream = TlsStream<TcpStream>;

    async fn handshake(
        &self,
        socket: TcpStream,
        address: SocketAddr,
    ) -> io::Result<Connected<Self::Stream, Peer>> {
        let users = Arc::clone(&self.users);
        let handshaking = tls_handshake(socket, Arc::clone(&self.config), move |session| {
            let certificate = session.peer_certificates().map(|chain| {
                let chain = chain.iter().map(|it| it.clone().into_owned()).collect();
                Arc::new(PeerCertificates::new(chain, users))
            });
            Peer {
                address,
                certificate,
            }
        });
        AbortOnDropHandle::new(self.threads.spawn(handshaking)).await?
    }
}
