//! A prebuilt Postgres is fetched once, checked, and then as good as an installed one.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use flate2::Compression;
use flate2::write::GzEncoder;
use hook_localpg::fetch::{Fetch, FetchError, RELEASE};
use hook_localpg::find::{FindError, Search};
use hook_localpg::options::Options;
use hook_localpg::server::PgServer;
use sha2::{Digest, Sha256};

use crate::support::{ask, binaries, place, pretend, quick, script};

/// A mirror on loopback that serves one archive and what it claims to be its checksum.
struct Mirror {
    url: String,
    /// Paths asked for.
    requests: Arc<Mutex<Vec<String>>>,
}

impl Mirror {
    fn new(archive: Vec<u8>, checksum: Option<String>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
        let url = format!(
            "http://{}/mirror/",
            listener.local_addr().expect("it is bound")
        );
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        // It ends with the process; a test cannot wait for a thread that waits for connections.
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                answer(stream, &archive, checksum.as_deref(), &seen);
            }
        });
        Self { url, requests }
    }

    fn fetch(&self, cache: &Path) -> Fetch {
        Fetch::new(cache.join("cache"), Some(self.url.clone()))
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("no thread panicked").clone()
    }
}

fn answer(
    mut stream: TcpStream,
    archive: &[u8],
    checksum: Option<&str>,
    seen: &Mutex<Vec<String>>,
) {
    let mut path = String::new();
    for line in BufReader::new(&stream).lines().map_while(Result::ok) {
        if let Some(rest) = line.strip_prefix("GET ") {
            path = rest.split(' ').next().unwrap_or_default().to_owned();
        }
        if line.is_empty() {
            break;
        }
    }
    let body = if path.ends_with(".tar.gz") {
        Some(archive)
    } else {
        checksum.map(str::as_bytes)
    };
    seen.lock().expect("no thread panicked").push(path);
    let status = if body.is_some() {
        "200 OK"
    } else {
        "404 Not Found"
    };
    let body = body.unwrap_or_default();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    // A client that hangs up has its reasons.
    drop(
        stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(body)),
    );
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Packs a directory the way releases are packed.
fn pack(tree: &Path) -> Vec<u8> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    archive
        .append_dir_all("postgresql-release", tree)
        .expect("it can be packed");
    archive
        .into_inner()
        .and_then(GzEncoder::finish)
        .expect("it can be packed")
}

fn pretend_archive(version: &str) -> Vec<u8> {
    let place = place();
    pretend(place.path(), "bin", version);
    pack(place.path())
}

#[test]
fn a_fetched_postgres_is_kept_and_not_fetched_again() {
    let archive = pretend_archive("17.5");
    let mirror = Mirror::new(
        archive.clone(),
        Some(format!("{}  name\n", sha256(&archive))),
    );
    let place = place();
    let fetch = mirror.fetch(place.path());
    let first = fetch.get().unwrap();
    assert_eq!(first.major(), 17);
    assert_eq!(fetch.get().unwrap(), first);

    let requests = mirror.requests();
    assert_eq!(requests.len(), 2, "{requests:?}");
    let start = format!("/mirror/{RELEASE}/postgresql-{RELEASE}-");
    for request in &requests {
        assert!(request.starts_with(&start), "{request}");
    }
    let left: Vec<_> = fs::read_dir(place.path().join("cache"))
        .unwrap()
        .flatten()
        .collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn an_archive_with_another_checksum_is_refused_before_it_is_unpacked() {
    let expected = sha256(b"what was published");
    let mirror = Mirror::new(pretend_archive("17.5"), Some(expected.clone()));
    let place = place();
    let error = mirror.fetch(place.path()).get().unwrap_err();
    assert!(
        matches!(&error, FetchError::Checksum { expected: said, .. } if *said == expected),
        "{error}"
    );
    assert_eq!(fs::read_dir(place.path().join("cache")).unwrap().count(), 0);
}

#[test]
fn without_a_checksum_nothing_is_downloaded() {
    let mirror = Mirror::new(pretend_archive("17.5"), None);
    let place = place();
    let error = mirror.fetch(place.path()).get().unwrap_err();
    assert!(matches!(error, FetchError::Http { .. }), "{error}");
    assert!(
        mirror
            .requests()
            .iter()
            .all(|path| path.ends_with(".sha256"))
    );

    let mirror = Mirror::new(
        pretend_archive("17.5"),
        Some("<html>sorry</html>".to_owned()),
    );
    let error = mirror.fetch(place.path()).get().unwrap_err();
    assert!(
        matches!(error, FetchError::ChecksumMissing { .. }),
        "{error}"
    );
}

#[test]
fn what_cannot_run_a_server_is_not_installed() {
    let cases = [
        (b"not an archive".to_vec(), "cannot unpack"),
        (pack(place().path()), "cannot unpack"),
        (pretend_archive("12.1"), "is version 12"),
    ];
    for (archive, reason) in cases {
        let checksum = sha256(&archive);
        let mirror = Mirror::new(archive, Some(checksum));
        let place = place();
        let error = mirror.fetch(place.path()).get().unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
        assert_eq!(fs::read_dir(place.path().join("cache")).unwrap().count(), 0);
    }
}

#[test]
fn an_archive_cannot_write_outside_its_directory() {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let mut header = tar::Header::new_gnu();
    header.set_size(4);
    header.set_mode(0o644);
    // The library refuses to pack such a name, so it is written into the header by hand.
    header.as_old_mut().name[..13].copy_from_slice(b"../../escaped");
    header.set_cksum();
    archive.append(&header, &b"evil"[..]).unwrap();
    let archive = archive.into_inner().and_then(GzEncoder::finish).unwrap();
    let mirror = Mirror::new(archive.clone(), Some(sha256(&archive)));
    let place = place();
    mirror.fetch(place.path()).get().unwrap_err();
    assert!(!place.path().join("escaped").exists());
    assert!(!place.path().join("cache/escaped").exists());
}

#[test]
fn an_installed_postgres_is_preferred_and_a_failed_fetch_explains_itself() {
    let mirror = Mirror::new(Vec::new(), None);
    let place = place();
    let installed = pretend(place.path(), "installed", "16.1");
    let fetch = Some(mirror.fetch(place.path()));
    let search = Search {
        named: None,
        directories: vec![installed.clone()],
        fetch,
    };
    assert_eq!(search.find().unwrap().directory(), installed);
    assert_eq!(mirror.requests().len(), 0);

    let search = Search {
        directories: Vec::new(),
        ..search
    };
    let error = search.find().unwrap_err();
    assert!(matches!(
        error,
        FindError::Missing {
            source: Some(FetchError::Http { .. }),
            ..
        }
    ));
}

#[test]
fn a_fetched_postgres_runs_a_server() {
    let real = binaries();
    let place = place();
    let tree = place.path().join("tree");
    fs::create_dir_all(tree.join("bin")).unwrap();
    for program in ["postgres", "initdb"] {
        let target = real.directory().join(program);
        script(
            &tree.join("bin").join(program),
            &format!("exec {} \"$@\"", target.display()),
        );
    }
    let archive = pack(&tree);
    let mirror = Mirror::new(archive.clone(), Some(sha256(&archive)));
    let binaries = mirror.fetch(place.path()).get().unwrap();
    let server = PgServer::start(Options {
        binaries,
        ..quick()
    })
    .unwrap();
    assert_eq!(ask(&server.url(), "SELECT 'alive'").unwrap(), "alive");
}
