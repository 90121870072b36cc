//! Who is connected: the handshake, and what it says of the other end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use lockgate_listener::{Connected, Handshake, shake_tls};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, UnixTime};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::tls::Users;

/// Who is at the other end.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    /// The address.
    pub(crate) address: SocketAddr,
    /// The certificate of a user, which was verified.
    pub(crate) certificate: Option<CertificateDer<'static>>,
    /// The certificate of a proxy in front of the server, which was verified.
    pub(crate) front_proxy: Option<CertificateDer<'static>>,
}

/// Shakes hands with the certificate of the server.
#[derive(Debug)]
pub(crate) struct Secure {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) users: Arc<Users>,
}

impl Handshake<Peer> for Secure {
    type Stream = TlsStream<TcpStream>;

    async fn shake(
        &self,
        socket: TcpStream,
        address: SocketAddr,
    ) -> io::Result<Connected<Self::Stream, Peer>> {
        shake_tls(socket, Arc::clone(&self.config), |session| {
            // By which authority a certificate is good decides what it is good for.
            let chain = session.peer_certificates().unwrap_or_default();
            let now = UnixTime::now();
            let first = || chain.first().map(|first| first.clone().into_owned());
            let is_user = self.users.is_user(chain, now);
            let is_front_proxy = self.users.is_front_proxy(chain, now);
            Peer {
                address,
                certificate: first().filter(|_| is_user),
                front_proxy: first().filter(|_| is_front_proxy),
            }
        })
        .await
    }
}
