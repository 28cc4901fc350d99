//! One connection through the proxy.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::proxy::{CutPoint, Mode, Shared};
use crate::wait::pause;

/// Size of one piece, in bytes.
const PIECE_BYTES: usize = 64 * 1024;

/// Longest time that the server gets to work on its last bytes after a cut that follows them.
const LAST_WORK_LIMIT: Duration = Duration::from_secs(10);

/// How a connection ends.
enum Ending {
    /// Both sides closed, or one failed.
    Over,
    /// Both sides are reset.
    Cut,
    /// The client is reset, the server finishes what it has.
    CutClient,
    /// The server is dropped, the client is left hanging.
    HalfOpen,
}

/// Which way a pump forwards.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Way {
    ToServer,
    ToClient,
}

/// Carries one connection to its end.
pub(super) async fn run(client: TcpStream, shared: Arc<Shared>) {
    let open = Open::new(&shared);
    let mut cuts = shared.cuts.subscribe();
    cuts.mark_unchanged();
    carry(client, &shared, cuts).await;
    drop(open);
}

/// Counts a connection as open while it lives, also when its task is aborted.
struct Open<'a>(&'a Shared);

impl<'a> Open<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.open.fetch_add(1, Ordering::Relaxed);
        Self(shared)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn carry(client: TcpStream, shared: &Shared, mut cuts: watch::Receiver<usize>) {
    let mut mode = shared.mode.subscribe();
    let thawed = tokio::select! {
        thawed = unfrozen(&mut mode) => thawed,
        _ = cuts.changed() => return reset(&client),
    };
    if thawed == Mode::HalfOpen {
        return swallow(client, cuts).await;
    }
    let Ok(server) = TcpStream::connect(shared.upstream()).await else {
        return reset(&client);
    };
    for stream in [&client, &server] {
        // It only saves latency; a peer that is gone shows in the next read.
        drop(stream.set_nodelay(true));
    }
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    let mut up = Pump::new(Way::ToServer, client_read, server_write, shared);
    let mut down = Pump::new(Way::ToClient, server_read, client_write, shared);
    let ending = tokio::select! {
        ending = both(&mut up, &mut down) => ending,
        _ = cuts.changed() => Ending::Cut,
        _ = mode.wait_for(|mode| *mode == Mode::HalfOpen) => Ending::HalfOpen,
    };
    let client = up.from.reunite(down.to).expect("the halves of one socket");
    let server = down.from.reunite(up.to).expect("the halves of one socket");
    match ending {
        Ending::Over => {}
        Ending::Cut => {
            reset(&client);
            reset(&server);
        }
        Ending::CutClient => {
            reset(&client);
            drop(client);
            finish(server).await;
        }
        Ending::HalfOpen => {
            drop(server);
            swallow(client, cuts).await;
        }
    }
}

async fn both(up: &mut Pump<'_>, down: &mut Pump<'_>) -> Ending {
    let (up, down) = (up.run(), down.run());
    tokio::pin!(up, down);
    let mut first = None;
    loop {
        let ending = tokio::select! {
            ending = &mut up, if first != Some(Way::ToServer) => (Way::ToServer, ending),
            ending = &mut down, if first != Some(Way::ToClient) => (Way::ToClient, ending),
        };
        match ending {
            // One direction ended in good order; the other may go on.
            (way, Ok(None)) if first.is_none() => first = Some(way),
            (_, Ok(None) | Err(_)) => return Ending::Over,
            (_, Ok(Some(ending))) => return ending,
        }
    }
}

/// One direction of a connection.
struct Pump<'a> {
    way: Way,
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    shared: &'a Shared,
    mode: watch::Receiver<Mode>,
}

impl<'a> Pump<'a> {
    fn new(way: Way, from: OwnedReadHalf, to: OwnedWriteHalf, shared: &'a Shared) -> Self {
        Self {
            way,
            from,
            to,
            shared,
            mode: shared.mode.subscribe(),
        }
    }

    /// Forwards until this direction ends; an ending concerns the whole connection.
    async fn run(&mut self) -> io::Result<Option<Ending>> {
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let length = self.from.read(&mut piece).await?;
            // The mode is looked at after the read, so that nothing slips through a freeze.
            if let Mode::Delay(delay) = unfrozen(&mut self.mode).await {
                pause(delay).await;
            }
            if length == 0 {
                self.to.shutdown().await?;
                return Ok(None);
            }
            let bytes = &piece[..length];
            let cut = match self.way {
                Way::ToServer => self.shared.cut_point(bytes),
                Way::ToClient => None,
            };
            if cut == Some(CutPoint::Before) {
                return Ok(Some(Ending::Cut));
            }
            self.to.write_all(bytes).await?;
            if cut == Some(CutPoint::After) {
                return Ok(Some(Ending::CutClient));
            }
        }
    }
}

/// Waits until the proxy is not frozen and gives its mode.
async fn unfrozen(mode: &mut watch::Receiver<Mode>) -> Mode {
    let waited = mode.wait_for(|mode| *mode != Mode::Freeze).await;
    let thawed = waited.map(|mode| *mode).ok();
    match thawed {
        Some(mode) => mode,
        // The proxy is gone, and so is this connection in a moment.
        None => std::future::pending().await,
    }
}

/// Reads and drops what the client sends, until it closes or is cut.
async fn swallow(mut client: TcpStream, mut cuts: watch::Receiver<usize>) {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        tokio::select! {
            read = client.read(&mut piece) => {
                if read.unwrap_or_default() == 0 {
                    return;
                }
            }
            _ = cuts.changed() => return reset(&client),
        }
    }
}

/// Lets the server finish: it sees an orderly end after the last bytes.
async fn finish(mut server: TcpStream) {
    drop(server.shutdown().await);
    let mut nobody = tokio::io::sink();
    let rest = tokio::io::copy(&mut server, &mut nobody);
    // What it still says is for nobody.
    drop(timeout(LAST_WORK_LIMIT, rest).await);
}

/// Makes the kernel send a reset when the socket is dropped.
fn reset(stream: &TcpStream) {
    // It fails only when the peer has reset the connection already.
    drop(SockRef::from(stream).set_linger(Some(Duration::ZERO)));
}
