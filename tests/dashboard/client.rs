//! A client that says exactly the bytes it is told.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long an answer may take before the test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A connection on which `bytes` have been sent.
pub(crate) fn connect(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("the dashboard listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time is set");
    // A server that has closed the connection already is looked at by the caller.
    let _ = stream.write_all(bytes);
    stream
}

/// All that comes before the connection ends.
pub(crate) fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}"),
    }
    answer
}

/// A request's whole answer, as text. `headers` are lines.
pub(crate) fn get(address: SocketAddr, path: &str, headers: &str) -> String {
    let host = if headers.contains("Host:") { String::new() } else { format!("Host: {address}\r\n") };
    let request = format!("GET {path} HTTP/1.1\r\n{host}Connection: close\r\n{headers}\r\n");
    String::from_utf8_lossy(&rest(connect(address, request.as_bytes()))).into_owned()
}

/// The code of an answer.
pub(crate) fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}
