//! A port on which nothing ever happens.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

/// A listener that never accepts and whose queue is full: connecting to it never ends.
#[derive(Debug)]
pub struct Blackhole {
    listener: TcpListener,
    /// The load.
    _queued: Vec<TcpStream>,
}

impl Blackhole {
    /// Takes a port of the loopback and fills its queue.
    ///
    /// # Panics
    ///
    /// The system gives no port.
    pub async fn start() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket
            .bind(SocketAddr::from(([127, 0, 0, 1], 0)))
            .expect("a free port");
        let listener = socket.listen(0).expect("a listener");
        let address = listener.local_addr().expect("an address");
        let mut queued = Vec::new();
        // The queue is full once the system stops answering, which only waiting can tell.
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
    /// The listener has no address, which does not happen.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().expect("an address")
    }
}
