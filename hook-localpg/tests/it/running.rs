//! A server does what its options say, and obeys its handle.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use hook_localpg::options::{Durability, Options, WhenRunning};
use hook_localpg::server::{PgServer, StartError};
use rustix::process::{Pid, getpgid, getpgrp};

use crate::support::{ask, binaries, is_alive, kept, place, quick, run, wait_until};

#[test]
fn a_private_server_goes_with_its_handle() {
    let server = PgServer::start(quick()).unwrap();
    assert_eq!(
        ask(&server.url(), "SELECT current_user::text").unwrap(),
        "hook"
    );
    let (pid, directory) = (server.pid().unwrap(), server.directory().to_owned());
    let sockets = server.socket_directory().unwrap();
    assert!(sockets.join(format!(".s.PGSQL.{}", server.port())).exists());
    drop(server);
    wait_until("the server has ended", || !is_alive(pid));
    wait_until("nothing is left", || {
        !directory.exists() && !sockets.exists()
    });
}

#[test]
fn a_stopped_private_server_leaves_nothing() {
    let mut server = PgServer::start(quick()).unwrap();
    let directory = server.directory().to_owned();
    server.stop().unwrap();
    assert_eq!(server.pid(), None);
    server.stop().unwrap();
    drop(server);
    assert!(!directory.exists());
}

#[test]
fn nobody_gets_in_without_the_password() {
    let server = PgServer::start(quick()).unwrap();
    let url = server.url();
    let password = url.split([':', '@']).nth(2).unwrap();
    assert!(password.len() >= 32);
    assert!(!format!("{server:?}").contains(password));
    let guess = url.replace(password, "guess");
    assert!(ask(&guess, "SELECT 'in'").unwrap_err().contains("password"));
    let mode = |name: &str| {
        let metadata = fs::metadata(server.directory().join(name)).unwrap();
        metadata.permissions().mode() & 0o777
    };
    assert_eq!(mode("password"), 0o600);
    assert_eq!(mode("data"), 0o700);
    assert_eq!(mode(""), 0o700);
}

#[test]
fn durability_and_further_settings_reach_the_server() {
    let settings = vec![("max_connections".to_owned(), "37".to_owned())];
    let server = PgServer::start(Options {
        settings,
        ..quick()
    })
    .unwrap();
    assert_eq!(ask(&server.url(), "SHOW max_connections").unwrap(), "37");
    assert_eq!(ask(&server.url(), "SHOW fsync").unwrap(), "off");
    assert_eq!(
        ask(&server.url(), "SHOW synchronous_commit").unwrap(),
        "off"
    );

    let server = PgServer::start(Options::new(binaries())).unwrap();
    for setting in [
        "SHOW fsync",
        "SHOW synchronous_commit",
        "SHOW full_page_writes",
    ] {
        assert_eq!(ask(&server.url(), setting).unwrap(), "on", "{setting}");
    }
}

#[test]
fn a_setting_that_postgres_refuses_is_reported_from_its_log() {
    let settings = vec![("no_such_setting".to_owned(), "1".to_owned())];
    let error = PgServer::start(Options {
        settings,
        ..quick()
    })
    .unwrap_err();
    assert!(matches!(&error, StartError::Failed { log } if log.contains("no_such_setting")));
}

#[test]
fn data_and_address_outlast_every_kind_of_stop() {
    let place = place();
    let options = Options {
        durability: Durability::Full,
        ..kept(place.path())
    };
    let mut server = PgServer::start(options.clone()).unwrap();
    let url = server.url();
    run(&url, "CREATE TABLE kept AS SELECT 'still here' AS word");
    for stop in [PgServer::stop, PgServer::stop_immediate, PgServer::kill] {
        stop(&mut server).unwrap();
        assert!(ask(&url, "SELECT ''").is_err());
        server.start_again().unwrap();
        assert_eq!(server.url(), url);
        assert_eq!(ask(&url, "SELECT word FROM kept").unwrap(), "still here");
    }
    server.stop().unwrap();
    drop(server);
    let server = PgServer::start(options).unwrap();
    assert_eq!(server.url(), url);
    assert_eq!(ask(&url, "SELECT word FROM kept").unwrap(), "still here");
}

#[test]
fn a_paused_server_answers_when_it_goes_on() {
    let mut server = PgServer::start(quick()).unwrap();
    server.pause().unwrap();
    let url = server.url();
    let asker = std::thread::spawn(move || ask(&url, "SELECT 'late'"));
    // It cannot be shown that an answer never comes; that none has come yet is a fair sample.
    assert!(!asker.is_finished());
    server.resume();
    assert_eq!(asker.join().unwrap().unwrap(), "late");
    server.pause().unwrap();
    server.stop().unwrap();
}

#[test]
fn an_interrupt_at_the_terminal_does_not_reach_the_server() {
    let server = PgServer::start(quick()).unwrap();
    let group = getpgid(Pid::from_raw(server.pid().unwrap())).unwrap();
    assert_ne!(group, getpgrp());
}

#[test]
fn a_second_start_is_refused_or_joins_or_waits() {
    let place = place();
    let mut first = PgServer::start(kept(place.path())).unwrap();
    assert!(first.is_owner());

    let error = PgServer::start(kept(place.path())).unwrap_err();
    assert!(matches!(&error, StartError::Running { directory } if directory == first.directory()));

    let reuse = Options {
        when_running: WhenRunning::Reuse,
        ..kept(place.path())
    };
    let mut guest = PgServer::start(reuse.clone()).unwrap();
    assert!(!guest.is_owner());
    assert_eq!((guest.url(), guest.pid()), (first.url(), first.pid()));
    guest.stop().unwrap();
    drop(guest);
    assert_eq!(ask(&first.url(), "SELECT 'alive'").unwrap(), "alive");

    let brief = WhenRunning::Wait(Duration::from_millis(50));
    let error = PgServer::start(Options {
        when_running: brief,
        ..kept(place.path())
    })
    .unwrap_err();
    assert!(matches!(error, StartError::Running { .. }));

    let patient = WhenRunning::Wait(Duration::from_secs(60));
    let options = Options {
        when_running: patient,
        ..kept(place.path())
    };
    let waiting = std::thread::spawn(move || PgServer::start(options).unwrap());
    let pid = first.pid();
    first.stop().unwrap();
    drop(first);
    let second = waiting.join().unwrap();
    assert!(second.is_owner());
    assert_ne!(second.pid(), pid);
}

#[test]
fn starts_at_one_moment_give_one_server() {
    let place = place();
    let options = Options {
        when_running: WhenRunning::Reuse,
        ..kept(place.path())
    };
    let starts: Vec<_> = (0..4)
        .map(|_| {
            let options = options.clone();
            std::thread::spawn(move || PgServer::start(options).unwrap())
        })
        .collect();
    let servers: Vec<PgServer> = starts
        .into_iter()
        .map(|start| start.join().unwrap())
        .collect();
    assert_eq!(servers.iter().filter(|server| server.is_owner()).count(), 1);
    for server in &servers {
        assert_eq!(server.url(), servers[0].url());
    }
}

#[test]
fn a_taken_port_is_passed_over_unless_it_was_asked_for() {
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let place = place();
    fs::write(place.path().join("port"), format!("{port}\n")).unwrap();
    let server = PgServer::start(kept(place.path())).unwrap();
    assert_ne!(server.port(), port);

    let error = PgServer::start(Options {
        port: Some(port),
        ..quick()
    })
    .unwrap_err();
    assert!(
        matches!(&error, StartError::Failed { log } if log.contains("bind")),
        "{error}"
    );
}

#[test]
fn data_of_another_version_is_not_touched() {
    let place = place();
    fs::create_dir(place.path().join("data")).unwrap();
    fs::write(place.path().join("data/PG_VERSION"), "99\n").unwrap();
    let error = PgServer::start(kept(place.path())).unwrap_err();
    assert!(matches!(error, StartError::Version { data: 99, .. }));
}
