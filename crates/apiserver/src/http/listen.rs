//! Who is connected: the handshake, and what it says of the other end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use lockgate_listener::{Connected, Handshake, shake_tls};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// Who is at the other end.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    /// The address.
    pub(crate) address: SocketAddr,
    /// The certificate, which was verified.
    pub(crate) certificate: Option<CertificateDer<'static>>,
}

/// Shakes hands with the certificate of the server.
#[derive(Debug)]
pub(crate) struct Secure(pub(crate) Arc<ServerConfig>);

impl Handshake<Peer> for Secure {
    type Stream = TlsStream<TcpStream>;

    async fn shake(
        &self,
        socket: TcpStream,
        address: SocketAddr,
    ) -> io::Result<Connected<Self::Stream, Peer>> {
        shake_tls(socket, Arc::clone(&self.0), |session| {
            let certificates = session.peer_certificates();
            let first = certificates.and_then(<[_]>::first);
            let certificate = first.map(|first| first.clone().into_owned());
            Peer {
                address,
                certificate,
            }
        })
        .await
    }
}
