//! TLS that requests client certificates and leaves their verification to each request.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use lockgate_follow::Failure;
use lockgate_listener::{Connected, Handshake, tls_handshake};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// The certificates of a client.
#[derive(Debug)]
pub(crate) struct Peer(pub(crate) Vec<CertificateDer<'static>>);

pub(crate) struct Secure(Arc<ServerConfig>);

impl Secure {
    pub(crate) fn new(certificate: &[u8], key: &[u8]) -> Result<Self, Failure> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Arc::new(Shown(Arc::clone(&provider)));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain?, PrivateKeyDer::from_pem_slice(key)?)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }
}

impl Handshake<Peer> for Secure {
    type Stream = TlsStream<TcpStream>;

    async fn handshake(
        &self,
        socket: TcpStream,
        _: SocketAddr,
    ) -> io::Result<Connected<Self::Stream, Peer>> {
        tls_handshake(socket, Arc::clone(&self.0), |session| {
            let shown = session.peer_certificates().unwrap_or_default();
            Peer(shown.iter().map(|one| one.clone().into_owned()).collect())
        })
        .await
    }
}

/// Accepts every certificate whose private key the client has. The issuing CA is verified with each request, since the
/// CAs may change.
#[derive(Debug)]
struct Shown(Arc<CryptoProvider>);

impl ClientCertVerifier for Shown {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
