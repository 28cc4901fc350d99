//! TLS towards targets: the system's roots, the operator's own, and nothing older than TLS 1.2.

use std::{path::Path, sync::Arc};

use anyhow::{Context, ensure};
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::CryptoProvider,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{classify::TransportError, client::failure::Failure};

/// Whether certificates are verified.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Verification {
    /// Against the system's roots and the operator's.
    #[default]
    Full,
    /// Not at all: whoever sits on the path can read and change deliveries.
    Off,
}

/// Makes TLS sessions with targets.
pub(crate) struct Tls(TlsConnector);

impl Tls {
    /// Loads the roots.
    ///
    /// # Errors
    /// The operator's file cannot be read, holds no certificate, or one that is not valid. The
    /// system's roots may be missing: then only the operator's are trusted.
    pub(crate) fn new(ca_file: Option<&Path>, verification: Verification) -> anyhow::Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .context("choosing TLS versions")?;
        let mut config = match verification {
            Verification::Full => builder.with_root_certificates(roots(ca_file)?),
            Verification::Off => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AcceptAny(provider))),
        }
        .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// Speaks TLS over `stream`, for the host that the certificate must name.
    pub(crate) async fn handshake(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, Failure> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            let text = "the host name cannot be in a certificate";
            Failure::new(TransportError::Tls, text)
        })?;
        self.0
            .connect(name, stream)
            .await
            .map_err(|error| Failure::of_handshake(&error))
    }
}

fn roots(ca_file: Option<&Path>) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    for error in &system.errors {
        tracing::warn!(%error, "some of the system's root certificates cannot be read");
    }
    roots.add_parsable_certificates(system.certs);
    if let Some(path) = ca_file {
        for certificate in certificates_in(path)? {
            roots
                .add(certificate)
                .context("a certificate of HOOK_EGRESS_CA_FILE is no root")?;
        }
    }
    if roots.is_empty() {
        tracing::warn!("no root certificates are known, so every https delivery will fail");
    }
    Ok(roots)
}

/// Reads the certificates of a PEM file, of which there must be one at least.
///
/// # Errors
/// The file cannot be read, or holds something else.
pub(crate) fn certificates_in(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
        .context("it cannot be read")?
        .collect::<Result<_, _>>()
        .context("it is no PEM file")?;
    let mut probe = RootCertStore::empty();
    for certificate in &certificates {
        probe
            .add(certificate.clone())
            .context("one of them is no root")?;
    }
    ensure!(!certificates.is_empty(), "it holds none");
    Ok(certificates)
}

/// Accepts any certificate, but still wants the peer to own the key that goes with it.
#[derive(Debug)]
struct AcceptAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
