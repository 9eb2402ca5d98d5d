//! General tools: a clock and random numbers that a simulation can control, named tasks whose end is reported, watched
//! values whose watchers wake in order, errors with their causes, and ids as keys. Imports nothing else of this crate.

mod clock;
pub mod duration;
mod error_chain;
mod failure_log;
pub mod input;
mod listen;
mod permit;
mod proxy;
mod rng;
mod section;
mod signals;
mod socket_path;
mod socks;
mod spelling;
mod tasks;
mod transport;
mod tunnel;
pub mod watch;
mod wrap;
pub mod yaml;

pub use clock::Clock;
pub use error_chain::{ErrorChain, error_chain};
pub use failure_log::FailureLog;
pub use listen::listen;
pub use permit::{Permit, Permitted};
pub use proxy::{Proxies, Proxy, ProxyError};
pub use rng::Rng;
pub use section::{Fault, Faults, Section};
pub use signals::stop_on_signal;
pub use socket_path::{MAX_SOCKET_PATH, SocketPathTooLong, check_socket_path};
pub use spelling::folded;
pub use tasks::{TaskEnd, TaskEnds, TaskFate, Tasks, panic_message};
pub use transport::{BoxedIo, Dial, Io};
pub use tunnel::{TunnelError, reach, tunnel};
pub use wrap::{WIDTH, wrap};
