//! A port that never accepts connections.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

/// A listener that never accepts and whose backlog is full: connecting to it hangs.
#[derive(Debug)]
pub struct Blackhole {
    listener: TcpListener,
    /// The connections in the backlog.
    _queued: Vec<TcpStream>,
}

impl Blackhole {
    /// Listens on a loopback port and fills its backlog.
    ///
    /// # Panics
    ///
    /// Panics if no port is available.
    pub async fn start() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket
            .bind(SocketAddr::from(([127, 0, 0, 1], 0)))
            .expect("a free port");
        let listener = socket.listen(0).expect("a listener");
        let address = listener.local_addr().expect("an address");
        let mut queued = Vec::new();
        // The backlog is full once connecting hangs, which only a timeout shows.
        while let Ok(connected) =
            timeout(Duration::from_millis(150), TcpStream::connect(address)).await
        {
            queued.extend(connected);
        }
        Self {
            listener,
            _queued: queued,
        }
    }

    /// The address.
    ///
    /// # Panics
    ///
    /// Never: the listener has an address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().expect("an address")
    }
}
