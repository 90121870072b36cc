//! A network with faults: a proxy between a client and a server.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The state of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// Bytes are forwarded.
    Open,
    /// Bytes are not forwarded, without an error: a partition.
    Silent,
    /// Connections are reset, and no new ones are accepted.
    Closed,
}

/// A proxy on loopback whose network can be cut. Dropping it closes all connections.
#[derive(Debug)]
pub struct CutProxy {
    address: SocketAddr,
    network: Arc<watch::Sender<Network>>,
    task: JoinHandle<()>,
}

impl CutProxy {
    /// Starts a proxy in front of a server.
    ///
    /// # Panics
    ///
    /// Panics if no port is available.
    pub async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("its number");
        let network = Arc::new(watch::Sender::new(Network::Open));
        let state = Arc::clone(&network);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let mut closed = state.subscribe();
                let network = state.subscribe();
                tokio::spawn(async move {
                    tokio::select! {
                        () = forward(client, server, network) => {}
                        _ = closed.wait_for(|network| *network == Network::Closed) => {}
                    }
                });
            }
        });
        Self {
            address,
            network,
            task,
        }
    }

    /// The address of the proxy.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the network, also for open connections.
    pub fn set(&self, network: Network) {
        self.network.send_replace(network);
    }
}

impl Drop for CutProxy {
    fn drop(&mut self) {
        self.set(Network::Closed);
        self.task.abort();
    }
}

async fn forward(client: TcpStream, server: SocketAddr, network: watch::Receiver<Network>) {
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let back = network.clone();
    tokio::join!(
        copy(&client, &server, network),
        copy(&server, &client, back)
    );
}

async fn copy(from: &TcpStream, to: &TcpStream, mut network: watch::Receiver<Network>) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        // Bytes that cannot be forwarded wait, as in a network that loses packets.
        if network
            .wait_for(|network| *network == Network::Open)
            .await
            .is_err()
            || from.readable().await.is_err()
        {
            return;
        }
        if *network.borrow() != Network::Open {
            continue;
        }
        let count = match from.try_read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(_) => return,
        };
        let mut rest = &buffer[..count];
        while !rest.is_empty() {
            if to.writable().await.is_err() {
                return;
            }
            match to.try_write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }
}
