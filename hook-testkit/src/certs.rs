//! Certificates of a test's own authority, good and bad.
//!
//! Everything is made in memory when it is needed. Only the authority's certificate is written to
//! a file, because the product takes the name of such a file as a setting.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DnType, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{default_provider, sign::any_supported_type};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::ResolvesServerCertUsingSni;
use rustls::sign::CertifiedKey;
use tempfile::NamedTempFile;

/// An object identifier that nobody knows, for a certificate that is merely large.
const PADDING_OID: &[u64] = &[1, 3, 6, 1, 4, 1, 99_999, 1];

/// A certificate authority that only the test trusts.
#[derive(Debug)]
pub struct TestAuthority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    file: NamedTempFile,
}

impl TestAuthority {
    /// Makes a new authority. One that the product is not told about is an unknown one.
    ///
    /// # Panics
    /// When its file cannot be written.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "each authority is another one, which a default value would hide"
    )]
    pub fn new() -> Self {
        let mut params = params(&[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let common_name = "hook test authority";
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        let issuer = CertifiedIssuer::self_signed(params, new_key())
            .expect("an authority can sign its own certificate");
        let mut file = NamedTempFile::new().expect("a temporary file can be made");
        file.write_all(issuer.pem().as_bytes())
            .expect("a temporary file can be written");
        Self { issuer, file }
    }

    /// Its certificate in PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Its certificate in DER.
    #[must_use]
    pub fn der(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }

    /// The file with its certificate, for `HOOK_EGRESS_CA_FILE`; it lives as long as `self`.
    #[must_use]
    pub fn pem_file(&self) -> &Path {
        self.file.path()
    }

    /// A server with a good certificate for these names and addresses.
    #[must_use]
    pub fn server(&self, names: &[&str]) -> Arc<ServerConfig> {
        let (chain, key) = self.issue(params(names));
        plain_server(chain, key)
    }

    /// A server whose certificate ran out in 2020.
    #[must_use]
    pub fn expired_server(&self, names: &[&str]) -> Arc<ServerConfig> {
        let mut params = params(names);
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(2020, 1, 1);
        let (chain, key) = self.issue(params);
        plain_server(chain, key)
    }

    /// A server that has a good certificate for each of these names, chosen by the name that the
    /// client asks for, and none for any other.
    ///
    /// # Panics
    /// When a name is not a host name.
    #[must_use]
    pub fn server_by_name(&self, names: &[&str]) -> Arc<ServerConfig> {
        let mut resolver = ResolvesServerCertUsingSni::new();
        for name in names {
            let (chain, key) = self.issue(params(&[*name]));
            let key = any_supported_type(&key).expect("our own keys are supported");
            resolver
                .add(name, CertifiedKey::new(chain, key))
                .expect("the certificate was made for this name");
        }
        let config = builder().with_cert_resolver(Arc::new(resolver));
        Arc::new(config)
    }

    /// A server that sends its good certificate and then others that add up to `bytes`.
    ///
    /// # Panics
    /// When the certificates cannot be made.
    #[must_use]
    pub fn huge_chain_server(&self, names: &[&str], bytes: usize) -> Arc<ServerConfig> {
        let (mut chain, key) = self.issue(params(names));
        let mut padding = params(&["padding.test"]);
        let extension = CustomExtension::from_oid_content(PADDING_OID, vec![4; bytes]);
        padding.custom_extensions.push(extension);
        let padding = padding
            .signed_by(&new_key(), &self.issuer)
            .expect("an authority can sign");
        chain.push(padding.der().clone());
        plain_server(chain, key)
    }

    fn issue(
        &self,
        params: CertificateParams,
    ) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let key = new_key();
        let certificate = params
            .signed_by(&key, &self.issuer)
            .expect("an authority can sign");
        (vec![certificate.der().clone()], private(&key))
    }
}

/// A server whose certificate is signed by itself.
///
/// # Panics
/// When a name is neither a host name nor an address.
#[must_use]
pub fn self_signed_server(names: &[&str]) -> Arc<ServerConfig> {
    let key = new_key();
    let certificate = params(names)
        .self_signed(&key)
        .expect("a key can sign its own certificate");
    plain_server(vec![certificate.der().clone()], private(&key))
}

/// The one cryptography provider of the tests, named so that no global default is needed.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(default_provider())
}

fn params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    CertificateParams::new(names).expect("a test uses proper names")
}

fn new_key() -> KeyPair {
    KeyPair::generate().expect("a key can be made")
}

fn private(key: &KeyPair) -> PrivateKeyDer<'static> {
    PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()))
}

fn builder() -> rustls::ConfigBuilder<ServerConfig, rustls::server::WantsServerCert> {
    ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the provider knows these versions")
        .with_no_client_auth()
}

fn plain_server(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Arc<ServerConfig> {
    let config = builder()
        .with_single_cert(chain, key)
        .expect("certificate and key belong together");
    Arc::new(config)
}
