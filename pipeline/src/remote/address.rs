//! [`ExecutorAddress`]: where an executor listens.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where an executor listens for hosts.
///
/// # Examples
/// ```
/// use uruk_pipeline::remote::ExecutorAddress;
///
/// let address: ExecutorAddress = "unix:/run/executor".parse()?;
/// assert_eq!(address, ExecutorAddress::Unix("/run/executor".into()));
/// let address: ExecutorAddress = "localhost:7000".parse()?;
/// assert_eq!(address.to_string(), "tcp:localhost:7000");
/// # Ok::<(), uruk_pipeline::remote::ExecutorAddressError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecutorAddress {
    /// A socket of this machine, which has a place among the files: `unix:PATH`.
    Unix(PathBuf),
    /// A host and a port of TCP: `tcp:HOST:PORT`, or without `tcp:`.
    Tcp(String),
}

/// A text that is no [`ExecutorAddress`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no address of an executor: write unix:PATH or HOST:PORT")]
pub struct ExecutorAddressError {
    text: String,
}

impl FromStr for ExecutorAddress {
    type Err = ExecutorAddressError;

    fn from_str(text: &str) -> Result<Self, ExecutorAddressError> {
        let refused = || ExecutorAddressError { text: text.to_owned() };
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(refused()) } else { Ok(Self::Unix(path.into())) };
        }
        let place = text.strip_prefix("tcp:").unwrap_or(text);
        match place.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                Ok(Self::Tcp(place.to_owned()))
            }
            _ => Err(refused()),
        }
    }
}

impl fmt::Display for ExecutorAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(place) => write!(f, "tcp:{place}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_no_addresses_are_refused() {
        for text in ["", "unix:", "tcp:", "host", "host:", ":7000", "host:70000", "host:port"] {
            let error = text.parse::<ExecutorAddress>().expect_err(text);
            assert!(error.to_string().contains(&format!("`{text}`")), "{error}");
        }
        let six: ExecutorAddress = "[::1]:7000".parse().expect("it has a port");
        assert_eq!(six, ExecutorAddress::Tcp("[::1]:7000".into()));
    }
}
