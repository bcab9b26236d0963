//! A TCP proxy that can stall (bytes wait, sockets stay open) and cut (sockets are reset).

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Pass,
    Stall,
}

/// A proxy in front of one address. It ends when dropped.
pub struct Proxy {
    /// Where it listens.
    pub address: SocketAddr,
    mode: watch::Sender<Mode>,
    cuts: Arc<watch::Sender<u64>>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mode, modes) = watch::channel(Mode::Pass);
        let cuts = Arc::new(watch::channel(0).0);
        let cutting = cuts.clone();
        let task = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let modes = modes.clone();
                let mut cut = cutting.subscribe();
                tokio::spawn(async move {
                    let Ok(far) = TcpStream::connect(target).await else { return };
                    let (near_read, near_write) = near.into_split();
                    let (far_read, far_write) = far.into_split();
                    tokio::select! {
                        () = pump(near_read, far_write, modes.clone()) => {}
                        () = pump(far_read, near_write, modes) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Self { address, mode, cuts, task }
    }

    /// From now on no byte passes; nobody is told.
    pub fn stall(&self) {
        self.mode.send_replace(Mode::Stall);
    }

    /// Bytes pass again.
    pub fn pass(&self) {
        self.mode.send_replace(Mode::Pass);
    }

    /// Closes all open connections.
    pub fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pump(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut modes: watch::Receiver<Mode>,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if modes.wait_for(|mode| *mode == Mode::Pass).await.is_err() || to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
